extension SessionConfiguration {
    /// Identifies this configuration in the state directory. It stays the same as long as the session's file means the
    /// same, and changes when the meaning changes.
    ///
    /// It is computed from what differs from the defaults, so that a new version of the daemon, which knows more keys,
    /// computes the same for the same file. It contains nothing secret, and need not withstand a deliberate collision.
    package var digest: String {
        var lines: [String] = []
        Self.collect(self, Self(), at: "", into: &lines)
        // FNV-1a.
        var hash: UInt64 = 0xCBF2_9CE4_8422_2325
        for byte in lines.joined(separator: "\n").utf8 { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
        return String(hash, radix: 16)
    }

    /// Appends the parts of a value that differ from the default, each with its path.
    private static func collect(_ value: Any, _ standard: Any, at path: String, into lines: inout [String]) {
        // Reflection is slow, and most parts are what they are by default.
        if let value = value as? AnyHashable, value == standard as? AnyHashable { return }
        let (mirror, other) = (Mirror(reflecting: value), Mirror(reflecting: standard))
        guard mirror.displayStyle == .struct, mirror.subjectType == other.subjectType, !mirror.children.isEmpty else {
            let text = String(describing: value)
            if text != String(describing: standard) { lines.append("\(path) \(text)") }
            return
        }
        for (part, otherPart) in zip(mirror.children, other.children) {
            collect(part.value, otherPart.value, at: "\(path).\(part.label ?? "")", into: &lines)
        }
    }
}
