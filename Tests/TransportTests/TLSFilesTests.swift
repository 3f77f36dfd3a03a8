import Glibc
import NIOSSL
import Support
import Testing
import Vocabulary

@testable import Transport

/// TLS files that are replaced under a running session.
@Suite final class TLSFilesTests {
    private let certificates: TestCertificates
    private let scratch: TemporaryDirectory
    private var directory: String { scratch.path }
    private let options: TLSOptions

    init() async throws {
        certificates = try await TestCertificates.shared.value
        scratch = try TemporaryDirectory()
        let directory = scratch.path
        options = TLSOptions(
            authorities: directory + "/ca", certificate: directory + "/certificate", key: directory + "/key")
        try replace("ca", by: "trusted.pem")
        try replace("certificate", by: "client.pem")
        try replace("key", by: "client.key")
    }

    deinit { scratch.remove() }

    private func replace(_ file: String, by source: String) throws {
        // Beside it and renamed, as tools do it that replace certificates.
        try scratch.write(file, try fileContents(certificates.path(source), atMost: 1 << 16))
    }

    private func name(_ loaded: LoadedTLS) -> [String] {
        loaded.context.configuration.certificateChain.flatMap { source in
            guard case .certificate(let certificate) = source else { return [String]() }
            return certificate._subjectAlternativeNames().map { String(decoding: $0.contents, as: UTF8.self) }
        }
    }

    private func load(_ last: LoadedTLS?) throws -> LoadedTLS {
        try LoadedTLS.load(TLSFiles(options, last: last), last: last).get()
    }

    @Test func `a good new pair is used at the next attempt`() throws {
        let first = try load(nil)
        #expect(name(first) == ["edge-42"])
        try replace("certificate", by: "next.pem")
        try replace("key", by: "next.key")
        let second = try load(first)
        #expect(name(second) == ["edge-43"])
        #expect(second.rejected == nil)
        #expect(try load(second).context === second.context)
    }

    @Test(
        arguments: [
            ("damaged.pem", nil, "is not PEM, or damaged"), (nil, "damaged.pem", "is not PEM, or damaged"),
            ("next.pem", nil, "do not belong together"), (nil, "next.key", "do not belong together"),
            ("damaged.pem", "damaged.pem", "is not PEM, or damaged"),
        ] as [(String?, String?, String)])
    func `a broken new pair leaves the old one in use, and is reported once`(
        certificate: String?, key: String?, words: String
    ) throws {
        let first = try load(nil)
        if let certificate { try replace("certificate", by: certificate) }
        if let key { try replace("key", by: key) }
        let second = try load(first)
        #expect(name(second) == ["edge-42"])
        let rejected = try #require(second.rejected)
        #expect(rejected.detail == .ownFilesUnusable)
        #expect(rejected.message.contains(words), "\(rejected.message)")
        let third = try load(second)
        #expect(name(third) == ["edge-42"])
        #expect(third.rejected == nil)
        // The other file arrives, or the broken one is corrected.
        try replace("certificate", by: "next.pem")
        try replace("key", by: "next.key")
        let fourth = try load(third)
        #expect(name(fourth) == ["edge-43"])
        #expect(fourth.rejected == nil)
    }

    @Test func `a missing file is treated like a broken one`() throws {
        let first = try load(nil)
        unlink(directory + "/key")
        let second = try load(first)
        #expect(name(second) == ["edge-42"])
        #expect(second.rejected?.message.contains("No such file") == true)
    }

    @Test func `a pipe is not waited for`() throws {
        unlink(directory + "/ca")
        try #require(mkfifo(directory + "/ca", 0o600) == 0)
        #expect {
            try load(nil)
        } throws: { error in
            (error as? TransportFailure)?.message.hasSuffix("it is not a regular file") == true
        }
    }

    @Test func `broken authorities leave the old ones in use`() throws {
        let first = try load(nil)
        try replace("ca", by: "damaged.pem")
        let second = try load(first)
        #expect(second.rejected?.message.contains("the authorities") == true)
        #expect(second.context.configuration.trustRoots == first.context.configuration.trustRoots)
    }

    @Test func `a broken pair does not keep a removed authority in use`() throws {
        let first = try load(nil)
        try replace("ca", by: "stranger.pem")
        try replace("certificate", by: "damaged.pem")
        let second = try load(first)
        #expect(second.rejected != nil)
        #expect(name(second) == ["edge-42"])
        #expect(second.context.configuration.trustRoots != first.context.configuration.trustRoots)
    }

    @Test func `broken files at the first attempt are a failure, and later ones are read again`() throws {
        try replace("certificate", by: "next.pem")
        #expect(throws: TransportFailure.self) { try load(nil) }
        try replace("key", by: "next.key")
        #expect(name(try load(nil)) == ["edge-43"])
    }

    @Test func `our own expired certificate is named`() throws {
        #expect(try load(nil).expiry(at: time(nil)) == nil)
        try replace("certificate", by: "over.pem")
        let expiry = try #require(try load(nil).expiry(at: time(nil)))
        #expect(expiry == "our own certificate in \(directory)/certificate has expired, or our clock is wrong")
    }

    @Test func `a rejection of our expired certificate is reported with that`() async throws {
        try replace("certificate", by: "over.pem")
        let context = try certificates.server("localhost", clientAuthority: "trusted.pem")
        let server = try await TestServer(.echo, tls: context)
        let client = try await TestClient(
            "mqtts://localhost:\(server.port)", options: Connection.Options(tls: options))
        let failure = try await client.failure()
        #expect(failure.code == .tlsFailed)
        #expect(failure.message.contains("our own certificate in \(directory)/certificate has expired"))
    }

    @Test func `an expired certificate of the server is not blamed on ours`() async throws {
        try replace("certificate", by: "over.pem")
        let server = try await TestServer(.echo, tls: try certificates.server("expired"))
        let client = try await TestClient(
            "mqtts://localhost:\(server.port)", options: Connection.Options(tls: options))
        let failure = try await client.failure()
        #expect(failure.detail == .certificateExpired)
        #expect(!failure.message.contains("our own certificate"), "\(failure.message)")
    }
}
