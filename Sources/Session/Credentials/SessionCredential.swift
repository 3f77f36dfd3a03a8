/// A secret, and what its source tells of it.
package struct SessionCredential: Sendable {
    package var secret: [UInt8]
    /// `nil` if it does not expire, or its source does not say.
    package var end: CredentialEnd?
    /// Which version of the file it comes from; `nil` if it is from no file.
    package var mark: FileMark?

    package init(secret: [UInt8], end: CredentialEnd? = nil, mark: FileMark? = nil) {
        self.secret = secret
        self.end = end
        self.mark = mark
    }
}

/// A version of a file: another one has another mark.
package struct FileMark: RawRepresentable, Hashable, Sendable {
    /// Device and inode, size, and when it was modified and changed. It is kept in the state directory.
    package let rawValue: String

    package init(rawValue: String) {
        self.rawValue = rawValue
    }
}
