import Glibc
import SessionCore
import Support
import Testing

@testable import Configuration

private let good = "endpoints = [\"mqtts://broker.example\"]\nuser = \"u\"\n"

private func name(_ text: String) throws -> SessionName { try #require(SessionName(text)) }

@Suite struct `A configuration directory` {
    @Test func `with nothing in it is all defaults and no sessions`() throws {
        let scratch = try ConfigurationScratch()
        var expected = LoadedConfiguration(daemon: .success(DaemonConfiguration()), sessions: [:], errors: [])
        #expect(scratch.load() == expected)
        #expect(rmdir("\(scratch.path)/sessions.d") == 0)
        expected.missingFolder = scratch.load().missingFolder
        #expect(scratch.load() == expected)
        #expect(
            expected.missingFolder?.description.hasPrefix("\(scratch.path)/sessions.d: cannot be read: No such file")
                == true)
    }

    @Test func `whose sessions are behind a link that leads nowhere is fatal`() throws {
        let scratch = try ConfigurationScratch()
        #expect(rmdir("\(scratch.path)/sessions.d") == 0)
        #expect(symlink("nowhere", "\(scratch.path)/sessions.d") == 0)
        let loaded = scratch.load()
        #expect(throws: ConfigurationErrors.self) { try loaded.daemon.get() }
        let folder = "\(scratch.path)/sessions.d"
        #expect(loaded.errors.map(\.description) == ["\(folder): cannot be read: No such file or directory"])
    }

    @Test func `tells which file a session has`() throws {
        let scratch = try ConfigurationScratch()
        for name in ["main", "gw@", "gw@a"] { try scratch.write("sessions.d/\(name).toml", good) }
        let files = scratch.load().files
        #expect(files.path(of: try name("main")) == "sessions.d/main.toml")
        #expect(files.path(of: try name("gw@a")) == "sessions.d/gw@a.toml", "its own")
        #expect(files.path(of: try name("gw@b")) == "sessions.d/gw@.toml")
    }

    @Test func `whose holdfast.toml is a link that leads nowhere is fatal, since the rules in it are wanted`() throws {
        let scratch = try ConfigurationScratch()
        #expect(symlink("elsewhere/holdfast.toml", "\(scratch.path)/holdfast.toml") == 0)
        let loaded = scratch.load()
        #expect(throws: ConfigurationErrors.self) { try loaded.daemon.get() }
        let target = "\(scratch.path)/elsewhere/holdfast.toml"
        #expect(
            loaded.errors.map(\.description) == [
                "\(scratch.path)/holdfast.toml: is a link to \(target), which does not exist"
            ])
    }

    @Test func `that is not there is fatal`() throws {
        let loaded = ConfigurationLoader.load(directory: "/nonexistent/holdfast")
        #expect(throws: ConfigurationErrors.self) { try loaded.daemon.get() }
        #expect(
            loaded.errors.map(\.description) == ["/nonexistent/holdfast: cannot be read: No such file or directory"])
    }

    @Test func `whose sessions cannot be listed is fatal`() throws {
        let scratch = try ConfigurationScratch()
        #expect(rmdir("\(scratch.path)/sessions.d") == 0)
        try scratch.write("sessions.d", "not a directory")
        let loaded = scratch.load()
        #expect(throws: ConfigurationErrors.self) { try loaded.daemon.get() }
        #expect(loaded.errors.map(\.description) == ["\(scratch.path)/sessions.d: cannot be read: Not a directory"])
    }

    @Test func `has the sessions of the files that end in toml`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write("sessions.d/main.toml", good)
        try scratch.write("sessions.d/example.toml.disabled", "nonsense")
        try scratch.write("sessions.d/main.toml~", "nonsense")
        try scratch.write("sessions.d/.main.toml", "nonsense")
        let loaded = scratch.load()
        #expect(loaded.errors == [])
        #expect(loaded.sessions.keys.sorted() == [try name("main")])
        #expect(try loaded.sessions[name("main")]?.get().user == "u")
    }

    @Test func `accepts the installed example under its name`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write("holdfast.toml", repositoryFile("etc/holdfast/holdfast.toml"))
        try scratch.write("sessions.d/example.toml", repositoryFile("etc/holdfast/sessions.d/example.toml.disabled"))
        let loaded = scratch.load()
        #expect(loaded.errors == [])
        #expect(try loaded.sessions[name("example")]?.get().user == "edge-42")
    }

    @Test func `with one broken session has the others`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write("sessions.d/bad.toml", "user = 1")
        try scratch.write("sessions.d/good.toml", good)
        let loaded = scratch.load()
        #expect(try loaded.daemon.get() == DaemonConfiguration())
        #expect(try loaded.sessions[name("good")]?.get().user == "u")
        #expect(throws: ConfigurationErrors.self) { try loaded.sessions[name("bad")]?.get() }
        #expect(loaded.errors.count == 2)
    }

    @Test func `reports the errors of all files at once`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write("holdfast.toml", "durability = \"ful\"\n[acces]\n")
        try scratch.write("sessions.d/b.toml", good + "x = 1")
        try scratch.write("sessions.d/a.toml", good + "y = 1\nz = 1")
        try scratch.write("sessions.d/Big_Name.toml", good)
        let loaded = scratch.load()
        #expect(throws: ConfigurationErrors.self) { try loaded.daemon.get() }
        #expect(
            loaded.errors.map { $0.description.dropFirst(scratch.path.count + 1) } == [
                #"holdfast.toml:1:14: durability must be one of "normal", "full", not "ful"; did you mean "full"?"#,
                #"holdfast.toml:2:2: there is no table "acces"; did you mean "access"?"#,
                #"sessions.d/Big_Name.toml: not a session's name: 1 to 63 of a-z, 0-9 and "-", the first not "-"; an instance is NAME@INSTANCE"#,
                #"sessions.d/a.toml:3:1: there is no key "y""#,
                #"sessions.d/a.toml:4:1: there is no key "z""#,
                #"sessions.d/b.toml:3:1: there is no key "x""#,
            ])
    }

    @Test(arguments: [
        (Array("user = \"\u{E9}".utf8) + [0xFF], ":1:10: the text is not UTF-8"),
        (Array("a = 1\nb".utf8) + [0xC3], ":2:2: the text is not UTF-8"),
        (Array("a\n# \0".utf8), ":2:3: there is a NUL character in the text"),
    ])
    func `refuses a file that is not a text`(bytes: [UInt8], expected: String) throws {
        let scratch = try ConfigurationScratch()
        try scratch.write("holdfast.toml", bytes)
        let loaded = scratch.load()
        #expect(loaded.errors.map(\.description) == ["\(scratch.path)/holdfast.toml\(expected)"])
        #expect(throws: ConfigurationErrors.self) { try loaded.daemon.get() }
    }

    @Test func `refuses a file of more than 1 MiB`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write("holdfast.toml", [UInt8](repeating: UInt8(ascii: "#"), count: 1 << 20 + 1))
        #expect(scratch.load().errors.map(\.message) == ["the file is larger than 1 MiB"])
    }

    @Test func `accepts a file of exactly 1 MiB`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write("holdfast.toml", [UInt8](repeating: UInt8(ascii: "#"), count: 1 << 20))
        #expect(scratch.load().errors == [])
    }

    @Test func `refuses anything but a regular file, and does not wait for it`() throws {
        let scratch = try ConfigurationScratch()
        let names = ["fifo", "directory", "link"].map { "\(scratch.path)/sessions.d/\($0).toml" }
        #expect(mkfifo(names[0], 0o600) == 0)
        #expect(mkdir(names[1], 0o700) == 0)
        #expect(symlink("/nonexistent", names[2]) == 0)
        let loaded = scratch.load()
        for name in names { remove(name) }
        #expect(loaded.sessions.count == 3)
        #expect(
            loaded.errors.map { $0.description.dropFirst(scratch.path.count + 1) } == [
                "sessions.d/directory.toml: this is not a regular file",
                "sessions.d/fifo.toml: this is not a regular file",
                "sessions.d/link.toml: is a link to /nonexistent, which does not exist",
            ])
    }

    @Test func `refuses all sessions that would displace each other, and no others`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write(
            "sessions.d/first.toml", "endpoints = [\"mqtt://two.example\", \"mqtts://one.example\"]\nuser = \"u\"\n")
        // Another listener of the same server.
        try scratch.write(
            "sessions.d/second.toml", "endpoints = [\"wss://one.example/mqtt\"]\nuser = \"x\"\nclient-id = \"u\"\n")
        try scratch.write("sessions.d/own-id.toml", good + "client-id = \"u-own\"")
        try scratch.write("sessions.d/other-port.toml", "endpoints = [\"mqtts://one.example:8884\"]\nuser = \"u\"\n")
        let loaded = scratch.load()
        let what = "where each would displace the other: give each file its own client-id, here for example"
        let first = #"sessions.d/first.toml:2:8: sessions first and second have the same client-id, "u", at "#
        let second = #"sessions.d/second.toml:3:13: sessions second and first have the same client-id, "u", at "#
        let expected: [String] = [
            first + "one.example:8883, \(what) client-id = \"u-first\"",
            second + "one.example:443, \(what) client-id = \"u-second\"",
        ]
        #expect(loaded.errors.map { String($0.description.dropFirst(scratch.path.count + 1)) } == expected)
        #expect(throws: ConfigurationErrors.self) { try loaded.sessions[name("first")]?.get() }
        #expect(throws: ConfigurationErrors.self) { try loaded.sessions[name("second")]?.get() }
        #expect(try loaded.sessions[name("own-id")]?.get().clientID == "u-own")
        #expect(try loaded.sessions[name("other-port")]?.get().clientID == "u")
    }

    @Test(arguments: ["look", "check"])
    func `refuses a session with the name of another one's second connection, and advises none`(name: String) throws {
        let scratch = try ConfigurationScratch()
        try scratch.write("sessions.d/plain.toml", good + "client-id = \"u\"")
        try scratch.write("sessions.d/second.toml", good + "client-id = \"u-\(name)\"")
        let errors = scratch.load().errors.map(\.message)
        #expect(errors.count == 1)
        #expect(errors.first?.hasPrefix("session second has the client-id \"u-\(name)\", which session plain") == true)
        try scratch.write("sessions.d/\(name).toml", good + "client-id = \"u\"")
        #expect(scratch.load().errors.contains { $0.message.hasSuffix("client-id = \"\(name)-u\"") })
    }

    @Test func `the place of a conflict is one of the two sessions that are named`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write("sessions.d/one.toml", "endpoints = [\"mqtt://one.example\"]\nuser = \"u\"\n")
        try scratch.write("sessions.d/two.toml", "endpoints = [\"mqtt://two.example\"]\nuser = \"u\"\n")
        try scratch.write(
            "sessions.d/both.toml", "endpoints = [\"mqtt://two.example\", \"mqtt://one.example\"]\nuser = \"u\"\n")
        let errors = scratch.load().errors.map(\.message)
        #expect(errors.contains { $0.hasPrefix("sessions both and one") && $0.contains(" one.example:1883,") })
        #expect(errors.allSatisfy { !$0.hasPrefix("sessions both and one") || !$0.contains(" two.example:") })
    }

    @Test func `tells a changed session from an unchanged one`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write("sessions.d/main.toml", good)
        let before = scratch.load()
        try scratch.write("sessions.d/main.toml", "# only a comment\n" + good)
        #expect(scratch.load().sessions == before.sessions)
        #expect(scratch.load().files != before.files)
        try scratch.write("sessions.d/main.toml", good + "device = \"d\"")
        #expect(scratch.load().sessions != before.sessions)
    }
}
