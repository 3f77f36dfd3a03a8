import MQTT
import NIOCore
import Session
import SessionCore
import Testing

@testable import DurableStore

@Suite struct `Publications and rooms` {
    let directory: TemporaryDirectory
    let main: SessionName

    init() throws {
        directory = try TemporaryDirectory()
        main = try session()
    }

    private func publication(_ topic: String, _ payload: String, since: Int64 = 0) -> Publication {
        Publication(
            topic: topic, payload: ByteBuffer(string: payload), qos: .atMostOnce,
            properties: .init(responseTopic: "r", userProperties: [UserProperty(name: "n", value: "v")]),
            since: Timestamp(rawValue: since))
    }

    @Test func `publications are restored in the order in which they were put`() async throws {
        let store = try openStore(directory)
        try await store.commit(
            main, .putPublication(publication("~/b", "1")), .putPublication(publication("a", "2")),
            .putPublication(publication("c", "3")))
        try await store.commit(
            main, .putPublication(publication("~/b", "4", since: 7)), .removePublication("c"), .removePublication("d"))
        let kept = try await openStore(try directory.copyAsItIs()).session(main)
        #expect(kept.publications == [publication("a", "2"), publication("~/b", "4", since: 7)])
        #expect(try await store.session(session("other")).publications.isEmpty)
    }

    @Test func `a topic with a retained message is kept until it is forgotten`() async throws {
        let store = try openStore(directory)
        try await store.commit(
            main, .rememberRetained("a"), .rememberRetained("b"), .rememberRetained("a"), .forgetRetained("b"),
            .forgetRetained("c"))
        #expect(try await openStore(try directory.copyAsItIs()).session(main).retainedTopics == ["a"])
    }

    @Test func `the topics of presences are kept and replaced`() async throws {
        let store = try openStore(directory)
        try await store.commit(main, .setPresenceTopics(["a", "b"]))
        #expect(try await openStore(try directory.copyAsItIs()).session(main).presenceTopics == ["a", "b"])
        try await store.commit(main, .setPresenceTopics(["c"]))
        #expect(try await openStore(try directory.copyAsItIs()).session(main).presenceTopics == ["c"])
        #expect(try await store.session(session("other")).presenceTopics.isEmpty)
    }

    @Test func `a room is kept, replaced and forgotten`() async throws {
        let store = try openStore(directory)
        #expect(try await store.session(main).chosenRoom == nil)
        try await store.commit(main, .setChosenRoom(nil))
        for room in ["x", "y"] {
            try await store.commit(main, .setChosenRoom(ChosenRoom(room: room, configured: "", bootID: "b")))
        }
        #expect(
            try await openStore(try directory.copyAsItIs()).session(main).chosenRoom
                == ChosenRoom(room: "y", configured: "", bootID: "b"))
        try await store.commit(main, .setChosenRoom(nil))
        #expect(try await store.session(main).chosenRoom == nil)
    }
}
