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

    @Test func `what is wrong with other files is reported beside other errors`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write("holdfast.toml", "durabilty = \"full\"\n[access]\nobserve = [\"user:no-such-user\"]\n")
        try scratch.write("sessions.d/main.toml", session + "devcie = \"d\"\npassword = \"file:/nowhere/secret\"\n")
        try scratch.write("sessions.d/other.toml", session + "room =\n[tls]\nca = \"/nowhere/ca.pem\"\n")
        let found = effectiveConfiguration(in: scratch.path, deviceID: "device").errors
        #expect(
            found.map { "\($0.session ?? "-") \($0.line ?? 0):\($0.column ?? 0)" } == [
                "- 1:1", "- 3:12", "main 3:1", "main 4:12", "other 3:7", "other 5:6",
            ], "\(found)")
    }

    @Test func `a secret that everyone can read is reported`() throws {
        #expect(
            try errors(["open": "x", "sessions.d/main.toml": session + "password = \"file:FOLDER/open\"\n"]) == [
                "main 3:12 FOLDER/open can be read by every user of the host: chmod o-r FOLDER/open"
            ])
    }

    /// The advice for a secret that everyone can read would harm the host.
    @Test func `a device is no secret`() throws {
        #expect(
            try errors(["sessions.d/main.toml": session + "password = \"file:/dev/zero\"\n"]) == [
                "main 3:12 /dev/zero is not a regular file"
            ])
    }

    @Test func `a helper that cannot be run is reported`() throws {
        #expect(
            try errors([
                "open": "x",
                "sessions.d/absent.toml": session + "password = \"exec:FOLDER/none --token hunter2\"\n",
                "sessions.d/file.toml": session + "client-id = \"c\"\npassword = \"exec:FOLDER/open\"\n",
                "sessions.d/good.toml": session + "client-id = \"d\"\npassword = \"exec:/bin/true hunter2\"\n",
            ]) == [
                "absent 3:12 FOLDER/none cannot be read: No such file or directory",
                "file 4:12 FOLDER/open is not executable: chmod +x FOLDER/open",
            ])
    }

    @Test func `a file of metrics needs a directory`() throws {
        #expect(
            try errors(["open": "", "holdfast.toml": "[metrics]\ntextfile = \"FOLDER/none/holdfast.prom\"\n"])
                == ["- 2:12 there is no directory FOLDER/none"])
        #expect(
            try errors(["open": "", "holdfast.toml": "[metrics]\ntextfile = \"FOLDER/open/holdfast.prom\"\n"])
                == ["- 2:12 FOLDER/open is not a directory"])
        #expect(try errors(["holdfast.toml": "[metrics]\ntextfile = \"FOLDER/holdfast.prom\"\n"]) == [])
    }

    private static func pem(_ label: String, _ body: String = "MAMCAQE=") -> String {
        "-----BEGIN \(label)-----\n\(body)\n-----END \(label)-----\n"
    }

    @Test func `certificates and keys that cannot be used are reported`() throws {
        let pair = session + "[tls]\ncertificate = \"FOLDER/open\"\nkey = \"FOLDER/secret\"\n"
        #expect(
            try errors(["open": Self.pem("PRIVATE KEY"), "secret": "\u{1}", "sessions.d/main.toml": pair]) == [
                "main 4:15 FOLDER/open has no certificate in PEM format",
                "main 5:7 FOLDER/secret has no private key in PEM format",
            ])
        #expect(
            try errors([
                "open": "A comment.\n" + Self.pem("CERTIFICATE") + Self.pem("CERTIFICATE"),
                "secret": Self.pem("EC PARAMETERS", "BggqhkjOPQMBBw==") + Self.pem("EC PRIVATE KEY"),
                "sessions.d/main.toml": pair,
            ]) == [])
    }

    @Test func `a certificate and a key that are whole are compared, and others are not`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write("cert.pem", Self.pem("CERTIFICATE"))
        try scratch.write("key.pem", Self.pem("PRIVATE KEY"))
        chmod("\(scratch.path)/key.pem", 0o600)
        let pair = "[tls]\ncertificate = \"\(scratch.path)/cert.pem\"\nkey = \"\(scratch.path)/key.pem\"\n"
        try scratch.write("sessions.d/main.toml", session + pair)
        func errors() -> [String] {
            let configuration = effectiveConfiguration(
                in: scratch.path, deviceID: "device",
                pairProblem: { options in
                    options.certificate == "\(scratch.path)/cert.pem" && options.key == "\(scratch.path)/key.pem"
                        ? "they do not belong together" : nil
                })
            return configuration.errors.map { "\($0.line ?? 0):\($0.column ?? 0) \($0.message)" }
        }
        #expect(errors() == ["4:15 they do not belong together"])
        try scratch.write("key.pem", "")
        #expect(errors().map { $0.prefix { $0 != " " } } == ["5:7"], "that is wrong already")
    }

    @Test(
        arguments: ["password", "proxy.password", "tls.ca", "tls.certificate", "tls.key", "metrics.textfile"],
        ["MC4CAQAwBQYDK2VwBCIEIH+/", "a/MC4CAQAw", "/MC4CAQAw\nBQYDK2Vw", pem("PRIVATE KEY", "MC4CAQAw")])
    func `what stands in the place of a path or a secret is never printed`(key: String, value: String) throws {
        let scratch = try ConfigurationScratch()
        let assignment = "\(key) = '''\n\(value)'''\n"
        if key == "metrics.textfile" {
            try scratch.write("holdfast.toml", assignment)
        } else {
            // The other file of the pair is right.
            try scratch.write("pair.pem", Self.pem("CERTIFICATE") + Self.pem("PRIVATE KEY"))
            chmod("\(scratch.path)/pair.pem", 0o600)
            let other = ["tls.key": "tls.certificate", "tls.certificate": "tls.key"][key]
            let pair = other.map { "\($0) = \"\(scratch.path)/pair.pem\"\n" } ?? ""
            try scratch.write("sessions.d/main.toml", session + assignment + pair)
        }
        let found = effectiveConfiguration(
            in: scratch.path, deviceID: "device",
            pairProblem: { "\($0.certificate ?? "") and \($0.key ?? "") cannot be read" }
        ).errors.map(\.message)
        #expect(found.contains { $0.hasPrefix("\(key) must be ") }, "\(found)")
        #expect(!found.contains { $0.contains("MC4C") || $0.contains("BQYD") }, "\(found)")
    }

    @Test func `an empty password is reported`() throws {
        for (content, problem) in [("", " is empty"), ("\n", " is empty"), ("p\n", nil)] {
            let found = try errors([
                "secret": content, "sessions.d/main.toml": session + "password = \"file:FOLDER/secret\"\n",
            ])
            #expect(found == (problem.map { ["main 3:12 FOLDER/secret\($0)"] } ?? []))
        }
    }

    @Test(
        arguments: [
            (pem("CERTIFICATE"), nil), (pem("CERTIFICATE").replacing("\n", with: " \r\n"), nil),
            ("", "has no certificate in PEM format"), (pem("PRIVATE KEY"), "has no certificate in PEM format"),
            (pem("CERTIFICATE", "MAMCAQ=="), "has a certificate that is damaged"),
            (pem("CERTIFICATE", "MAMCAQEA"), "has a certificate that is damaged"),
            (pem("CERTIFICATE", "MAMC*QE="), "has a certificate that is damaged"),
            (pem("CERTIFICATE", "AAMCAQE="), "has a certificate that is damaged"),
            (pem("CERTIFICATE") + pem("CERTIFICATE", "MAM"), "has a certificate that is damaged"),
            ("-----BEGIN CERTIFICATE-----\nMAMCAQE=\n", "has a certificate that is cut off"),
        ] as [(String, String?)])
    func `a damaged certificate is told from a whole one`(_ text: String, _ problem: String?) {
        #expect(PEMFile.problem(in: text, .certificates) == problem)
    }

    @Test func `an encrypted key is of no use`() {
        for text in [
            Self.pem("ENCRYPTED PRIVATE KEY"),
            Self.pem("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMAMCAQE="),
        ] {
            #expect(PEMFile.problem(in: text, .key)?.contains("passphrase") == true)
        }
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
