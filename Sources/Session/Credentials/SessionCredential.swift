/// A secret, and what its source says about it.
package struct SessionCredential: Sendable {
    package var secret: [UInt8]
    /// `nil` if it does not expire, or its source does not say.
    package var end: CredentialEnd?
    /// The version of the file that it comes from; `nil` if it does not come from a file.
    package var mark: FileMark?

    package init(secret: [UInt8], end: CredentialEnd? = nil, mark: FileMark? = nil) {
        self.secret = secret
        self.end = end
        self.mark = mark
    }
}

/// Identifies a version of a file.
package struct FileMark: RawRepresentable, Hashable, Sendable {
    /// Device, inode, size, and the times of the last modification and of the last status change. Kept in the state
    /// directory.
    package let rawValue: String

    package init(rawValue: String) {
        self.rawValue = rawValue
    }
}
