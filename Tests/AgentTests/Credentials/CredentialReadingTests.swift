import Configuration
import Glibc
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Session
import Support
import Testing
import Transport

@testable import Agent

struct CredentialReadingTests {
    private static func read(_ content: String) throws -> String {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        try directory.write("secret", content)
        return String(decoding: try Credential.read(.file("\(directory.path)/secret")), as: UTF8.self)
    }

    @Test(arguments: [
        ("pass", "pass"), ("pass\n", "pass"), ("pass\r\n", "pass"), ("pass\n\n", "pass\n"), (" pa ss ", " pa ss "),
        ("pass\r", "pass\r"),
    ])
    func `a secret is the file without the end of its last line`(content: String, secret: String) throws {
        #expect(try Self.read(content) == secret)
    }

    @Test(arguments: ["", "\n", "\r\n"])
    func `an empty file is not a secret`(content: String) {
        #expect(throws: Credential.Failure.self) { try Self.read(content) }
    }

    @Test func `a pipe, a device or a directory is not a secret, and is not waited for`() throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let pipe = "\(directory.path)/pipe"
        try #require(mkfifo(pipe, 0o600) == 0)
        for path in [pipe, "/dev/null", directory.path] {
            #expect(throws: Credential.Failure.self) { try Credential.read(.file(path)) }
        }
    }

    @Test func `a secret has at most as many bytes as MQTT can express`() throws {
        let longest = String(repeating: "x", count: Credential.maximumLength)
        #expect(try Self.read(longest) == longest)
        #expect(try Self.read(longest + "\r\n") == longest)
        #expect(throws: Credential.Failure.self) { try Self.read(longest + "x") }
        #expect(throws: Credential.Failure.self) { try Self.read(longest + "xyz") }
    }

    @Test func `a file whose file system does not answer is named, and another one is read meanwhile`() async throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        try directory.write("secret", "pass")
        let (hung, good) = ("\(directory.path)/hung", "\(directory.path)/secret")
        let calls = BlockingCalls(eventLoop: MultiThreadedEventLoopGroup.singleton.next())
        let gate = ConditionLock(value: false)
        let blocked = calls.run(hung, within: nil) {
            gate.lock(whenValue: true)
            gate.unlock()
        }
        let fetched = try await Credential.fetch(.file(good), by: calls, timeLimit: .seconds(600))
        #expect(fetched.secret == Array("pass".utf8))
        let failure = await #expect(throws: Credential.Failure.self) {
            try await Credential.fetch(.file(hung), by: calls, timeLimit: .milliseconds(1))
        }
        #expect(failure?.description == "\(hung): there was no answer within 0.001 seconds")
        gate.lock()
        gate.unlock(withValue: true)
        try await blocked.get()
    }

    @Test func `a watch does not wait for a file system that does not answer, nor hold up the loop`() async throws {
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let calls = BlockingCalls(eventLoop: loop)
        let gate = ConditionLock(value: false)
        let blocked = calls.run("/hung/secret", within: nil) {
            gate.lock(whenValue: true)
            gate.unlock()
        }
        let failure = await #expect(throws: Credential.Failure.self) {
            try await Credential.change(
                of: [WatchedFiles(["/hung/secret"], last: nil)], by: calls, timeLimit: .milliseconds(1))
        }
        #expect(failure?.description == "there was no answer within 0.001 seconds")
        gate.lock()
        gate.unlock(withValue: true)
        try await blocked.get()
    }

    @Test func `a failure names the file and never its contents`() throws {
        let failure = #expect(throws: Credential.Failure.self) { try Credential.read(.file("/no/such/file")) }
        #expect(failure?.description == "/no/such/file: No such file or directory")
        let long = #expect(throws: Credential.Failure.self) {
            try Self.read("secret" + String(repeating: "x", count: Credential.maximumLength))
        }
        #expect(long?.description.contains("secretxx") == false)
    }
}
