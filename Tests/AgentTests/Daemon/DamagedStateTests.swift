import ControlAPI
import Glibc
import MQTT
import NIOCore
import NIOPosix
import Support
import Testing

@testable import Agent
@testable import DurableStore

/// A disk that returns other bits than were written: SQLite finds its pages sound, but their contents make no sense.
@Suite(.timeLimit(.minutes(10)))
struct DamagedStateTests {
    @Test func `a consumer that makes no sense is set aside and named, and its session runs`() async throws {
        try await DaemonUnderTest.withServer { directory, server, group in
            try directory.write("sessions.d/main.toml", await DaemonUnderTest.session(server))
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                let peer = try await daemon.watcher()
                try await peer.call("message.subscribe", #"{"session":"main","filter":"a","consumer":"billing"}"#)
            }
            try Database(path: "\(directory.path)/state/holdfast.db").execute("UPDATE consumer SET qos = 7")
            try await DaemonUnderTest.run(in: directory, server, on: group) { daemon in
                let peer = try await daemon.peer()
                try await until("the session is connected") {
                    try await peer.call("session.status", #"{"session":"main"}"#)["state"] == "connected"
                }
                #expect(daemon.log.lines.contains { $0.message.contains("the consumer \"billing\" is invalid") })
            }
        }
    }

    @Test func `a second message that makes no sense within an hour is in the status`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            for number in 1...4 {
                try await peer.call("message.publish", #"{"session":"main","topic":"t","payload":"\#(number)"}"#)
            }
            for number in [2, 3] {
                try await daemon.store.execute("UPDATE message SET qos = 7 WHERE payload = x'3\(number)'")
                if number == 2 { _ = try await daemon.store.message(#require(SessionName("main")), .init(rawValue: 2)) }
            }
            try await until("the session is started again") {
                (try? await peer.call("session.connect", #"{"session":"main"}"#)) != nil
            }
            try await until("the status says so") {
                let status = try await peer.call("session.status", #"{"session":"main"}"#)
                return status["readFailure"]?.text?.hasPrefix("the outbox cannot be read: ") == true
            }
            try await daemon.store.execute("UPDATE message SET qos = 1 WHERE qos = 7")
            try await until("it can be read") {
                try await peer.call("session.status", #"{"session":"main"}"#)["readFailure"] == .null
            }
        }
    }

    @Test func `another program cannot lock the database of a running daemon`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let publish = #"{"session":"main","topic":"t","payload":"x","wait":"delivered"}"#
            try await peer.call("message.publish", publish)
            let other = try Database(path: "\(daemon.directory.path)/state/holdfast.db")
            other.waitForLocks(0)
            #expect(throws: StoreError.self) { try other.execute("BEGIN IMMEDIATE") }
            #expect(try await peer.call("message.publish", publish)["delivered"] == .bool(true))
            #expect(try await peer.call("daemon.status")["storeFailure"] == .null)
        }
    }

    @Test func `a database that cannot be written refuses messages, says so, and recovers`() async throws {
        try await DaemonUnderTest.run { daemon, peer in
            let publish = #"{"session":"main","topic":"t","payload":"x","wait":"delivered"}"#
            try await peer.call("message.publish", publish)
            try await daemon.store.setWritable(false)
            for _ in 1...2 {
                await #expect(throws: ControlPeer.CallFailure(code: "store-full")) {
                    try await peer.call("message.publish", publish)
                }
            }
            let status = try await peer.call("daemon.status")
            #expect(status["storeFailure"]?.text?.contains("cannot write") == true)
            let session = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(session["state"] == "connected")
            #expect(session["storeFailure"] == status["storeFailure"])
            try await daemon.store.setWritable(true)
            try await until("it can be written") { try await peer.call("daemon.status")["storeFailure"] == .null }
            #expect(try await peer.call("message.publish", publish)["delivered"] == .bool(true))
        }
    }

    @Test func `what a program is told had no effect does not happen when the database can be written again`()
        async throws
    {
        try await DaemonUnderTest.run { daemon, peer in
            func subscribe(_ consumer: String) -> String {
                #"{"session":"main","filter":"\#(consumer)","qos":1,"consumer":"\#(consumer)"}"#
            }
            let made = try await peer.call("message.subscribe", subscribe("early"))
            let subscription = try #require(made["subscription"]?.text)
            try await peer.call("publication.put", #"{"session":"main","topic":"t","payload":"x"}"#)
            try await daemon.store.setWritable(false)
            let calls = [
                ("message.publish", #"{"session":"main","topic":"t","payload":"x"}"#),
                ("message.subscribe", subscribe("late")),
                ("message.unsubscribe", #"{"subscription":"\#(subscription)"}"#),
                ("message.unsubscribe", #"{"session":"main","consumer":"early"}"#),
                ("publication.remove", #"{"session":"main","topic":"t"}"#),
            ]
            for (method, parameters) in calls {
                await #expect(throws: ControlPeer.CallFailure(code: "store-full")) {
                    try await peer.call(method, parameters)
                }
            }
            try await daemon.store.setWritable(true)
            try await until("it can be written") { try await peer.call("daemon.status")["storeFailure"] == .null }
            let status = try await peer.call("session.status", #"{"session":"main"}"#)
            #expect(status["inbox"]?["consumers"]?.elements?.compactMap { $0["name"]?.text } == ["early"])
            let list = try await peer.call("publication.list", #"{"session":"main"}"#)
            #expect(list["publications"]?.elements?.map { $0["topic"] } == ["t"])
            try await peer.call("message.unsubscribe", #"{"subscription":"\#(subscription)"}"#)
        }
    }

    @Test func `the first to find that the database cannot be written is told that it is done later, and it is`()
        async throws
    {
        try await DaemonUnderTest.run { daemon, peer in
            try await peer.call("publication.put", #"{"session":"main","topic":"t","payload":"x"}"#)
            try await daemon.store.setWritable(false)
            let id = try await peer.request("publication.remove", #"{"session":"main","topic":"t"}"#)
            let error = try await peer.answer(id)["error"]
            #expect(error?["message"]?.text?.hasPrefix("the removal is not on disk yet: ") == true)
            #expect(error?["data"]?["hint"]?.text?.contains("it is written without another call") == true)
            try await daemon.store.setWritable(true)
            try await until("it is removed") {
                try await peer.call("publication.list", #"{"session":"main"}"#)["publications"]?.elements == []
            }
        }
    }

    @Test func `a database damaged while the daemon runs is replaced by one with the readable rows`()
        async throws
    {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            // More than the daemon and SQLite keep in memory.
            let text = String(repeating: "x", count: 900)
            for number in 0..<5000 {
                try await peer.request(
                    "message.publish", #"{"session":"main","topic":"t","payload":"\#(number) \#(text)"}"#)
            }
            try await peer.call("message.publish", #"{"session":"main","topic":"t","payload":"last"}"#)
            // Moves the rows from the log into the file, where the damage is made.
            let path = "\(daemon.directory.path)/state/holdfast.db"
            try await daemon.store.execute("PRAGMA wal_checkpoint(RESTART)")
            let file = try #require(fopen(path, "r+"))
            fseek(file, 0, SEEK_END)
            fseek(file, ftell(file) / 4096 / 3 * 4096, SEEK_SET)
            let garbage = [UInt8](repeating: 0x5A, count: 4096)
            #expect(fwrite(garbage, 1, garbage.count, file) == garbage.count)
            fclose(file)

            try await peer.call("session.connect", #"{"session":"main"}"#)
            var arrived: Set<String> = []
            while !arrived.contains("last") {
                arrived.insert(String(buffer: try await daemon.server.message().payload))
            }
            #expect(arrived.count > 4900)
            #expect(daemon.log.lines.contains { $0.message.contains("the durable state was damaged") })
            // The session is started again meanwhile.
            let after = #"{"session":"main","topic":"t","payload":"after","key":"after","wait":"delivered"}"#
            try await until("it is delivered") {
                try await peer.call("message.publish", after)["delivered"] == .bool(true)
            }
        }
    }
}
