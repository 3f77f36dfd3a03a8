package import Vocabulary

/// A secret, and what its source says about it.
package struct SessionCredential: Sendable {
    package var secret: [UInt8]
    /// `nil` if it does not expire, or its source does not say.
    package var end: CredentialEnd?
    /// The version of the file that it comes from; `nil` if it does not come from a file.
    package var file: FileVersion?

    package init(secret: [UInt8], end: CredentialEnd? = nil, file: FileVersion? = nil) {
        self.secret = secret
        self.end = end
        self.file = file
    }
}
