internal import Glibc

/// The secrets that LoadCredential= and similar settings put into a directory for this service only: systemd.exec(5).
public struct Credentials: Sendable {
    /// `$CREDENTIALS_DIRECTORY`, without a slash at the end; `nil` when the unit has no credentials.
    public let directory: String?

    public init() {
        self.init(directory: getenv("CREDENTIALS_DIRECTORY").map { String(cString: $0) })
    }

    init(directory text: String?) {
        guard let text, text.hasPrefix("/") else {
            directory = nil
            return
        }
        directory = text.count > 1 && text.hasSuffix("/") ? String(text.dropLast()) : text
    }

    /// The path of the file that holds a credential.
    ///
    /// - Throws: ``CredentialError``, including when the file does not exist at present.
    public func path(of name: String) throws(CredentialError) -> String {
        guard Self.isValid(name) else { throw .invalidName(name) }
        guard let directory else { throw .noDirectory }
        let path = "\(directory)/\(name)"
        guard access(path, F_OK) == 0 else { throw .missing(name: name, directory: directory) }
        return path
    }

    /// Whether it is a plain file name that LoadCredential= can express: a colon would end the name there.
    private static func isValid(_ name: String) -> Bool {
        (1...255).contains(name.utf8.count) && name != "." && name != ".."
            && name.utf8.allSatisfy {
                $0 >= 0x20 && $0 != 0x7F && $0 != UInt8(ascii: "/") && $0 != UInt8(ascii: ":")
            }
    }
}

/// Why a credential is not available.
public enum CredentialError: Error, Hashable, Sendable, CustomStringConvertible {
    /// `$CREDENTIALS_DIRECTORY` is not set.
    case noDirectory
    /// Not a file name, or one with a colon or a control character.
    case invalidName(String)
    case missing(name: String, directory: String)

    public var description: String {
        switch self {
        case .noDirectory:
            "there are no credentials: the daemon was started without LoadCredential= or SetCredential= in its "
                + "unit; restart the service after adding one"
        case .invalidName(let name):
            "\"\(name)\" cannot be the name of a credential"
        case .missing(let name, let directory):
            "there is no credential \"\(name)\" in \(directory): add LoadCredential=\(name):PATH to the unit, and restart it"
        }
    }
}
