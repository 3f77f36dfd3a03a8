import Configuration
import Glibc
import NIOCore
import Session
import Systemd
import Transport
import Vocabulary

/// Reads secrets. A secret is never logged, never part of an error, and kept no longer than its connection.
enum Credential {
    /// A password longer than this cannot be sent (MQTT 5, 1.5.6).
    static let maximumLength = 65_535

    struct Failure: Error, CustomStringConvertible {
        var description: String
    }

    /// - Parameter timeLimit: how long a helper command, or a file system, may take.
    static func fetch(
        _ reference: SecretReference, by calls: BlockingCalls,
        timeLimit: Duration = CredentialHelper.timeLimit
    ) async throws(Failure) -> SessionCredential {
        let name: String
        switch reference {
        case .exec(let command): return try await CredentialHelper.fetch(command, by: calls, timeLimit: timeLimit)
        case .file(let path): name = path
        case .credential(let credential): name = "the credential \(credential)"
        }
        do {
            return try await calls.run(name, within: timeLimit) {
                Result { () throws(Failure) in
                    // The version first, so that one that is written in between counts as a change.
                    let file = try path(of: reference).flatMap { FileVersion(of: [$0], skipsEmpty: true) }
                    return SessionCredential(secret: try read(reference), file: file)
                }
            }.get().get()
        } catch let failure as Failure {
            throw failure
        } catch {
            throw Failure(description: "\(name): \(error)")
        }
    }

    /// Returns when ``CredentialWatch`` sees another version of any of the files, or when the task is cancelled.
    ///
    /// - Parameters:
    ///   - files: must not be empty.
    ///   - timeLimit: how long the file system may take to begin.
    static func change(
        of files: [WatchedFiles], by calls: BlockingCalls,
        timeLimit: Duration = CredentialHelper.timeLimit
    ) async throws(Failure) {
        let (changes, continuation) = AsyncStream.makeStream(of: Never.self)
        let watch: CredentialWatch
        do {
            watch = try await calls.run(files[0].paths[0], within: timeLimit) {
                Result { () throws(Failure) in
                    try CredentialWatch(files) { continuation.finish() }
                }
            }.get().get()
        } catch let failure as Failure {
            throw failure
        } catch {
            throw Failure(description: "\(error)")
        }
        for await _ in changes {}
        withExtendedLifetime(watch) {}
    }

    /// The file that holds the secret; `nil` for a helper command.
    static func path(of reference: SecretReference) throws(Failure) -> String? {
        switch reference {
        case .file(let path): return path
        case .exec: return nil
        case .credential(let name):
            do throws(CredentialError) {
                return try Credentials().path(of: name)
            } catch {
                throw Failure(description: error.description)
            }
        }
    }

    /// Returns the bytes of a secret in a file, without the line feed that editors add at the end.
    ///
    /// Blocks on the file system, so call it off the event loop.
    static func read(_ reference: SecretReference) throws(Failure) -> [UInt8] {
        guard let path = try path(of: reference) else { preconditionFailure("a helper command is not read but run") }
        return try read(path)
    }

    private static func read(_ path: String) throws(Failure) -> [UInt8] {
        var bytes: [UInt8]
        do throws(FileError) {
            bytes = try fileContents(path, atMost: maximumLength + 2)
        } catch {
            switch error {
            case .system(let code): throw Failure(description: "\(path): \(String(cString: strerror(code)))")
            case .notRegular: throw Failure(description: "\(path) is not a regular file")
            }
        }
        if bytes.last == UInt8(ascii: "\n") {
            bytes.removeLast()
            if bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
        }
        guard !bytes.isEmpty else { throw Failure(description: "\(path) is empty") }
        guard bytes.count <= maximumLength else {
            throw Failure(description: "\(path) is longer than \(maximumLength) bytes")
        }
        return bytes
    }
}
