import ControlAPI
import Glibc
import Testing

@testable import Configuration

/// Errors that config check finds and loading does not.
struct ConfigurationReferencesTests {
    private func errors(_ files: [String: String]) throws -> [String] {
        let scratch = try ConfigurationScratch()
        for (name, text) in files { try scratch.write(name, text.replacing("FOLDER", with: scratch.path)) }
        for name in files.keys where name.hasPrefix("secret") { chmod("\(scratch.path)/\(name)", 0o600) }
        for name in files.keys where name.hasPrefix("open") { chmod("\(scratch.path)/\(name)", 0o644) }
        let loaded = scratch.load()
        #expect(loaded.errors.isEmpty, "the daemon itself starts with it")
        let configuration = effectiveConfiguration(in: scratch.path, deviceID: "device")
        return configuration.errors.map {
            "\($0.session ?? "-") \($0.line ?? 0):\($0.column ?? 0) \($0.message.replacing(scratch.path, with: "FOLDER"))"
        }
    }

    private let session = "endpoints = [\"mqtts://b.example\"]\nuser = \"u\"\n"

    @Test func `a missing file is reported, with the line of its key`() throws {
        #expect(
            try errors([
                "sessions.d/main.toml": session + "password = \"file:FOLDER/none\"\n[tls]\nca = \"FOLDER/ca.pem\"\n"
            ]) == [
                "main 3:12 FOLDER/none cannot be read: No such file or directory",
                "main 5:6 FOLDER/ca.pem cannot be read: No such file or directory",
            ])
    }

    @Test func `a secret that everyone can read is reported`() throws {
        #expect(
            try errors(["open": "x", "sessions.d/main.toml": session + "password = \"file:FOLDER/open\"\n"]) == [
                "main 3:12 FOLDER/open can be read by every user of the host: chmod o-r FOLDER/open"
            ])
    }

    @Test func `unknown users and groups are reported`() throws {
        #expect(
            try errors([
                "holdfast.toml":
                    "[access]\nobserve = [\"user:root\", \"user:no-such-user\"]\ncontrol = [\"group:no-such\", \"uid:7\"]\n"
            ]) == ["- 2:25 there is no user \"no-such-user\"", "- 3:12 there is no group \"no-such\""])
    }

    @Test func `users and groups of [topics] are looked up, too`() throws {
        #expect(
            try errors([
                "sessions.d/main.toml": """
                endpoints = ["mqtts://broker.example"]
                user = "u"
                [topics]
                publish = ["user:root a b", "user:no-such-user a"]
                subscribe = ["group:no-such #", "anyone #"]
                """
            ]) == ["main 4:29 there is no user \"no-such-user\"", "main 5:14 there is no group \"no-such\""])
    }
}
