@_spi(_Unicode) import Swift

extension String {
    /// Whether the text is in Unicode's normalization form C, as nearly every text is that a keyboard writes. Two texts in
    /// this form are equal only if their bytes are.
    ///
    /// Swift takes texts for equal that look the same, and servers compare the bytes of topics. Names of our own that
    /// become part of a topic must therefore be in this form.
    package var isInNormalFormC: Bool { utf8.allSatisfy { $0 < 0x80 } || unicodeScalars.elementsEqual(_nfc) }

    /// Whether servers and the kernel take the two texts for the same one.
    package func hasSameBytes(as other: String) -> Bool { utf8.elementsEqual(other.utf8) }
}
