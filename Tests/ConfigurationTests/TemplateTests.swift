import Glibc
import SessionCore
import Testing
import Vocabulary

@testable import Configuration

@Suite struct TemplateTests {
    private static let template = """
        endpoints = ["mqtts://%i.broker.example:8883"]
        user = "gateway-%i"
        room = "plant/%i"
        """

    private static func session(
        _ name: String, in loaded: LoadedConfiguration
    ) throws -> SessionConfiguration {
        let name = try #require(SessionName(name))
        return try #require(loaded.sessions[name]).get()
    }

    private static func scratch(_ template: String = template) throws -> ConfigurationScratch {
        let scratch = try ConfigurationScratch()
        try scratch.write("sessions.d/gw@.toml", template)
        return scratch
    }

    @Test func `a template is not a session, but each of its instances is`() throws {
        let loaded = try Self.scratch(Self.template + "\ninstances = [\"edge-1\", \"edge-2\"]").load()
        #expect(loaded.errors == [])
        #expect(loaded.sessions.keys.map(\.description).sorted() == ["gw@edge-1", "gw@edge-2"])
        let session = try Self.session("gw@edge-2", in: loaded)
        #expect(session.user == "gateway-edge-2")
        #expect(session.room == "plant/edge-2")
        #expect(session.endpoints.map(\.host) == ["edge-2.broker.example"])
        // A new neighbour is no change of this one.
        #expect(session.instances == [])
    }

    @Test func `a template is read once for all of its instances`() throws {
        let scratch = try Self.scratch(Self.template + "\ninstances = [\"edge-1\", \"edge-2\"]")
        let listing = SessionSource.list("\(scratch.path)/sessions.d", ["gw@.toml"])
        try scratch.write("sessions.d/gw@.toml", "")
        let users = try listing.sources.map { try SessionConfiguration($0.content()).user }
        #expect(users == ["gateway-edge-1", "gateway-edge-2"])
    }

    @Test func `a link to the template is an instance`() throws {
        let scratch = try Self.scratch()
        // The end of the test removes the files written, so the link is written first.
        try scratch.write("sessions.d/gw@edge-7.toml", "")
        #expect(unlink("\(scratch.path)/sessions.d/gw@edge-7.toml") == 0)
        #expect(symlink("gw@.toml", "\(scratch.path)/sessions.d/gw@edge-7.toml") == 0)
        let loaded = scratch.load()
        #expect(loaded.errors == [])
        #expect(try Self.session("gw@edge-7", in: loaded).user == "gateway-edge-7")
    }

    @Test func `an instance's own file takes precedence`() throws {
        let scratch = try Self.scratch(Self.template + "\ninstances = [\"edge-1\"]")
        try scratch.write("sessions.d/gw@edge-1.toml", "endpoints = [\"mqtts://b.example\"]\nuser = \"own-%i\"\n")
        let loaded = scratch.load()
        #expect(loaded.sessions.count == 1)
        #expect(try Self.session("gw@edge-1", in: loaded).user == "own-edge-1")
    }

    @Test func `a mistake in a template is reported once, and breaks its instances`() throws {
        let loaded = try Self.scratch(Self.template + "\nuesr = 1\ninstances = [\"a\", \"b\"]").load()
        #expect(loaded.errors.map(\.line) == [4])
        #expect(loaded.sessions.count == 2)
        for case .success in loaded.sessions.values { Issue.record("an instance of a broken template is right") }
    }

    @Test(arguments: [
        "instances = [\"A\"]", "instances = [\"a@b\"]", "instances = [\"\"]", "instances = \"a\"", "uesr = 1",
    ])
    func `a template is checked even without instances`(_ line: String) throws {
        let loaded = try Self.scratch(Self.template + "\n" + line).load()
        #expect(loaded.sessions.isEmpty)
        #expect(loaded.errors.map(\.line) == [4])
        // It concerns only its instances.
        #expect(throws: Never.self) { try loaded.daemon.get() }
    }

    @Test func `a wrong name in the list does not affect the other instances`() throws {
        let loaded = try Self.scratch(Self.template + "\ninstances = [\"n\", \"S\", 7, \"s\"]").load()
        #expect(loaded.sessions.keys.map(\.description).sorted() == ["gw@n", "gw@s"])
        #expect(try Self.session("gw@n", in: loaded).user == "gateway-n")
        #expect(loaded.errors.map(\.line) == [4, 4])
        // One that is missing from the list, perhaps because of the wrong name, is not removed.
        #expect(try loaded[#require(SessionName("gw@x"))] == .failure(ConfigurationErrors(loaded.errors)))
    }

    @Test func `only a template has instances`() throws {
        let scratch = try ConfigurationScratch()
        try scratch.write(
            "sessions.d/main.toml", "endpoints = [\"mqtts://b.example\"]\nuser = \"u\"\ninstances = [\"a\"]\n")
        #expect(scratch.load().errors.map(\.line) == [3])
    }

    @Test func `instances with one client-id are refused`() throws {
        let text = "endpoints = [\"mqtts://b.example\"]\nuser = \"same\"\ninstances = [\"a\", \"b\"]\n"
        let loaded = try Self.scratch(text).load()
        #expect(loaded.errors.count == 2)
        #expect(loaded.errors.allSatisfy { $0.message.contains("the same client-id") })
        // Another one for the template would be the same for both instances again.
        #expect(loaded.errors.allSatisfy { $0.message.hasSuffix("for example client-id = \"same-%i\"") })
    }
}
