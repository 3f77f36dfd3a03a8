import ControlAPI
import Foundation
import Glibc
import HoldfastClient
import Support
import Testing

@testable import DurableStore

/// A file system of a few mebibytes that replaces the daemon's state directory.
private struct SmallStateDirectory {
    let path: String

    init(_ daemon: DaemonProcess, size: String) throws {
        path = daemon.state
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        guard mount("tmpfs", path, "tmpfs", 0, "size=\(size)") == 0 else {
            throw Lab.Failure("mount: \(String(cString: strerror(errno)))")
        }
    }

    func unmount() { umount2(path, Int32(MNT_DETACH)) }

    /// Takes all the room that is left, as another program might.
    func fill() {
        let descriptor = open("\(path)/ballast", O_WRONLY | O_CREAT | O_APPEND, 0o600)
        let page = [UInt8](repeating: 1, count: 4096)
        while write(descriptor, page, page.count) > 0 {}
        close(descriptor)
    }

    func free() { unlink("\(path)/ballast") }
}

extension EndToEnd {
    @Test func `a full disk refuses only new messages, with a clear error, until it has room again`()
        async throws
    {
        try await withServer { lab, server, daemon in
            let disk = try SmallStateDirectory(daemon, size: "8m")
            defer { disk.unmount() }
            try daemon.session(heartbeat: "60s")
            try await daemon.startConnected()
            let far = try await LabSubscriber(lab, filter: "out/#")
            let near = try await daemon.client.subscribe(.init(session: "main", filter: "in/#"))
            let arrived = Arrived()
            let reading = Task {
                for try await case .message(let message) in near { await arrived.add(message.payload.text ?? "") }
            }
            defer { reading.cancel() }

            var accepted: [String] = []
            var number = 0
            func publish() async throws -> RPCError? {
                number += 1
                do throws(ClientError) {
                    _ = try await daemon.client.call(
                        MessagePublishMethod.self,
                        .init(session: "main", topic: "out/a", payload: .init(text: "\(number)"), wait: .delivered),
                        timeout: .seconds(180))
                    accepted.append("\(number)")
                    return nil
                } catch {
                    guard case .refused(let refusal) = error else { throw error }
                    return refusal
                }
            }
            for _ in 1...20 { #expect(try await publish() == nil) }
            try await server.publish("before", to: "in/a")
            try await until("what is sent to us arrives") { await arrived.has("before") }

            disk.fill()
            for _ in 1...10 {
                let refusal = try #require(try await publish())
                #expect(refusal.known == .storeFull)
                #expect(refusal.data?.hint?.isEmpty == false)
            }
            // Everything else continues: receiving, answering, the connection.
            for count in 1...10 { try await server.publish("full \(count)", to: "in/a") }
            try await until("what is sent to us arrives") { await arrived.has("full 10") }
            let status = try await daemon.status()
            #expect(status.state == .connected)
            #expect(status.counters.connects == 1)
            let refusal = try await daemon.client.call(DaemonStatusMethod.self, .init()).storeFailure
            #expect(refusal?.contains("no room") == true)

            disk.free()
            try await until("the status says no more that messages are refused, though none was published since") {
                try await daemon.client.call(DaemonStatusMethod.self, .init()).storeFailure == nil
            }
            try await until("messages are accepted again") { try await publish() == nil }
            for _ in 1...20 { #expect(try await publish() == nil) }
            let messages = try await far.received("everything accepted is there") { messages in
                Set(accepted).isSubset(of: Set(messages.map(\.payload)))
            }
            #expect(messages.map(\.payload) == accepted, "in order, once, and nothing that was refused")
            #expect(await daemon.isRunning)
        }
    }

    @Test func `a daemon that starts on a full disk says so before anything is published`() async throws {
        try await withLab { _, daemon in
            let disk = try SmallStateDirectory(daemon, size: "8m")
            defer { disk.unmount() }
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            _ = try await daemon.stop()
            disk.fill()
            try await daemon.start()
            func failure() async throws -> String? {
                try await daemon.call(DaemonStatusMethod.self, .init()).storeFailure
            }
            try await until("the status says so") { try await failure()?.contains("no room for ") == true }
            let shown = try await daemon.ctl("status")
            #expect(shown.output.contains("published messages cannot be stored"), "\(shown)")
            let refused = try await daemon.ctl("publish", "main", "t", "x")
            #expect(refused.errors.contains("no room for ") && refused.errors.contains("B are left"), "\(refused)")
            disk.free()
            try await until("the status says no more of it") { try await failure() == nil }
        }
    }

    @Test func `a read-only state directory is reported clearly`() async throws {
        try await withLab { lab, daemon in
            let disk = try SmallStateDirectory(daemon, size: "8m")
            defer { disk.unmount() }
            #expect(mount(nil, disk.path, nil, UInt(MS_REMOUNT) | UInt(MS_RDONLY), nil) == 0)
            try daemon.session()
            let result = try await lab.finish(daemon.command, in: lab.host)
            #expect(result.ending == .exited(73))
            #expect(result.errors.contains(daemon.state))
            #expect(result.errors.contains("Read-only file system"))
        }
    }

    @Test func `a damaged database is moved aside, reported, and the session continues with a clean start`()
        async throws
    {
        try await withConnected { lab, server, daemon in
            try await daemon.publish("1", to: "out/a", wait: .delivered)
            try await daemon.kill()
            // The log is removed too: it would repair what it covers.
            let names = try FileManager.default.contentsOfDirectory(atPath: daemon.state)
            for name in names where name.hasPrefix("holdfast.db-") { unlink("\(daemon.state)/\(name)") }
            let file = try #require(FileHandle(forWritingAtPath: "\(daemon.state)/holdfast.db"))
            try file.write(contentsOf: Data(repeating: 0x5A, count: 4096))
            try file.close()

            try await daemon.startConnected()
            let status = try await daemon.status()
            // Without state of our own, the server's session must not be resumed (rule 2).
            #expect(status.resumed == false)
            #expect(await daemon.log.contains("is kept as \(daemon.state)/holdfast.db.corrupt-"))
            let result = try await daemon.publish("2", to: "out/a", wait: .delivered)
            #expect(result.delivered)
        }
    }

    @Test func `a database damaged in the middle keeps its readable rows`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            // More than the daemon and SQLite keep in memory.
            let text = String(repeating: "x", count: 900)
            for first in stride(from: 0, to: 5000, by: 500) {
                try await withThrowingTaskGroup { group in
                    for number in first..<first + 500 {
                        group.addTask { _ = try await daemon.publish("\(number) \(text)", to: "out/a") }
                    }
                    try await group.waitForAll()
                }
            }
            try await daemon.kill()
            // Moves the rows from the log into the file, where the damage is made.
            let path = "\(daemon.state)/holdfast.db"
            try Database(path: path).execute("PRAGMA wal_checkpoint(TRUNCATE)")
            let file = try #require(FileHandle(forUpdatingAtPath: path))
            let pages = try file.seekToEnd() / 4096
            try file.seek(toOffset: pages / 3 * 4096)
            try file.write(contentsOf: Data(repeating: 0x5A, count: 4096))
            try file.close()

            try await LabServer.started(lab)
            let far = try await LabSubscriber(lab, filter: "out/#")
            try await daemon.start()
            try await daemon.connect()
            // The damage may be found at the start or when the row is read. With a key, repeated calls are one message.
            let after = MessagePublishMethod.Parameters(
                session: "main", topic: "out/a", payload: .init(text: "after"), key: "after", wait: .delivered)
            try await until("what is published afterwards is delivered") {
                (try? await daemon.call(MessagePublishMethod.self, after))?.delivered == true
            }
            let messages = try await far.received("the last one") { $0.last?.payload == "after" }
            let numbers = messages.dropLast().compactMap { $0.payload.split(separator: " ").first.flatMap { Int($0) } }
            #expect(numbers.count == messages.count - 1)
            #expect(Set(numbers).count == numbers.count)
            #expect(Set(numbers).isSubset(of: 0..<5000))
            #expect(numbers.count > 4900)
            #expect(await daemon.log.contains("is kept as \(daemon.state)/holdfast.db.corrupt-"))
        }
    }

    @Test func `a program that opens the database, or cuts its files, does not end or disturb the daemon`()
        async throws
    {
        try await withConnected(heartbeat: "60s") { lab, _, daemon in
            let far = try await LabSubscriber(lab, filter: "out/#")
            try await daemon.publish("1", to: "out/a", wait: .delivered)
            let other = try Database(path: "\(daemon.state)/holdfast.db")
            other.waitForLocks(100)
            for statement in ["BEGIN IMMEDIATE", "SELECT * FROM message"] {
                #expect(throws: StoreError.self) { try other.execute(statement) }
            }
            try await daemon.publish("2", to: "out/a", wait: .delivered)
            close(open("\(daemon.state)/holdfast.db-shm", O_RDWR | O_CREAT | O_TRUNC, 0o600))
            try await daemon.publish("3", to: "out/a", wait: .delivered)
            #expect(try await daemon.status().counters.connects == 1)
            #expect(try await daemon.call(DaemonStatusMethod.self, .init()).storeFailure == nil)

            #expect(truncate("\(daemon.state)/holdfast.db-wal", 0) == 0)
            // It is refused at most while the sessions start again with what was read. With a key, repeated calls are one
            // message.
            let last = MessagePublishMethod.Parameters(
                session: "main", topic: "out/a", payload: .init(text: "4"), key: "4", wait: .delivered)
            try await until("a message is delivered") {
                (try? await daemon.call(MessagePublishMethod.self, last))?.delivered == true
            }
            let messages = try await far.received("the last one") { $0.last?.payload == "4" }
            #expect(messages.map(\.payload) == ["1", "2", "3", "4"])
            #expect(await daemon.log.contains("is kept as \(daemon.state)/holdfast.db.corrupt-"))
            #expect(await daemon.isRunning)
        }
    }

    @Test func `a daemon that starts while another program has the database open says so`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            try await daemon.publish("1", to: "out/a")
            _ = try await daemon.stop()
            let other = try Database(path: "\(daemon.state)/holdfast.db")
            _ = try other.integer("SELECT count(*) FROM message")
            let result = try await lab.finish(daemon.command, in: lab.host)
            #expect(result.ending == .exited(75))
            #expect(result.errors.contains("another program has \(daemon.state)/holdfast.db open"))
            other.close()
            try await daemon.start()
            #expect(try await daemon.status().outbox.queued == 1)
        }
    }

    @Test func `a log that is removed while the daemon is down is told`() async throws {
        try await withLab { _, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            _ = try await daemon.publish("lost", to: "out/a")
            try await daemon.kill()
            try FileManager.default.removeItem(atPath: "\(daemon.state)/holdfast.db-wal")
            try await daemon.start()
            #expect(await daemon.log.contains("its write-ahead log was removed"))
            #expect(await daemon.log.contains("others that were accepted and not delivered may be lost"))
            #expect(try await daemon.status().outbox.queued == 0)
        }
    }

    /// SQLite alone would pass over everything behind the damage, without a word.
    @Test func `a log that is damaged while the daemon is down is told, and read as far as possible`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            var ids: Set<Int64> = []
            for number in 1...300 { ids.insert(try await daemon.publish("\(number)", to: "out/a").id) }
            try await daemon.kill()
            let log = try #require(FileHandle(forUpdatingAtPath: "\(daemon.state)/holdfast.db-wal"))
            let frames = (try log.seekToEnd() - 32) / 4120
            try log.seek(toOffset: 32 + frames / 3 * 4120 + 24 + 2000)
            try log.write(contentsOf: Data([0xA5, 0x5A]))
            try log.close()

            try await LabServer.started(lab)
            let far = try await LabSubscriber(lab, filter: "out/#")
            try await daemon.start()
            let files = try FileManager.default.contentsOfDirectory(atPath: daemon.state)
            #expect(files.contains { $0.hasPrefix("holdfast.db.corrupt-") && $0.hasSuffix("-damaged-wal") })
            #expect(await daemon.log.contains("of the write-ahead log is wrong, with "))
            #expect(!ids.contains(try await daemon.publish("after", to: "out/a").id), "no identifier is given twice")
            try await daemon.connect()
            let messages = try await far.received("the last one") { $0.last?.payload == "after" }
            let numbers = messages.dropLast().compactMap { Int($0.payload) }
            #expect(numbers == numbers.sorted() && Set(numbers).count == numbers.count)
            #expect(numbers.count > 200 && Set(numbers).isSubset(of: 1...300), "\(numbers.count)")
        }
    }

    /// The first page of the database is where everything else is found.
    @Test(arguments: [("holdfast.db-wal", 50_000), ("holdfast.db-wal", 10), ("holdfast.db", 10), ("holdfast.db", 9000)])
    func `what the disk cannot read does not keep the daemon from starting`(file: String, offset: Int) async throws {
        try await withLab { lab, daemon in
            let sector = try await BadSector(in: lab)
            try daemon.session(top: "autoconnect = false")
            try await daemon.start(after: sector.preparation)
            for number in 1...100 { _ = try await daemon.publish("\(number)", to: "out/a") }
            if file == "holdfast.db" { _ = try await daemon.stop() } else { try await daemon.kill() }
            try sector.put(at: offset, of: "\(daemon.state)/\(file)")
            try await daemon.start(after: sector.preparation)
            #expect(await daemon.log.contains("is kept as \(daemon.state)/holdfast.db.corrupt-"))
            let queued = try await daemon.status().outbox.queued
            _ = try await daemon.publish("after", to: "out/a")
            #expect(try await daemon.status().outbox.queued == queued + 1)
        }
    }

    @Test func `a message that is published again with its key after a kill arrives once`() async throws {
        try await withConnected { lab, _, daemon in
            let far = try await LabSubscriber(lab, filter: "out/#")
            for number in 1...12 {
                let peer = try await RawControl(daemon.socket)
                let line = #"""
                    {"jsonrpc":"2.0","id":1,"method":"message.publish","params":{"session":"main","topic":"out/a",\#
                    "payload":"\#(number)","qos":2,"key":"order-\#(number)"}}
                    """#
                // The program does not know whether the message was accepted: the daemon may have been killed before,
                // during or after that.
                if number % 3 == 0 { _ = try await peer.ask(line) } else { try await peer.send(line) }
                if number % 3 == 1 { _ = try await daemon.status() }
                try await daemon.kill()
                await peer.close()
                try await daemon.start()
                let again = try await daemon.call(
                    MessagePublishMethod.self,
                    .init(
                        session: "main", topic: "out/a", payload: .init(text: "\(number)"), qos: .exactlyOnce,
                        key: "order-\(number)", wait: .delivered))
                #expect(again.delivered)
            }
            try await daemon.publish("end", to: "out/a", wait: .delivered)
            let messages = try await far.received("the last one") { $0.last?.payload == "end" }
            #expect(messages.map(\.payload) == (1...12).map(String.init) + ["end"])
        }
    }

    @Test func `the outbox is listed, retried and dropped from the command line`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(
                top: "autoconnect = false", tables: "[outbox]\nmax-messages = 3\nwhen-full = \"drop-oldest\"")
            try await daemon.start()
            let events = try await daemon.events()
            for number in 1...5 { try await daemon.publish("\(number)", to: "out/\(number)") }
            let dropped = try await events.until("the second is dropped") { $0.event == .messageDropped && $0.id == 2 }
            #expect(dropped.topic == "out/2")
            #expect(dropped.reason?.code == "outbox-full")
            let list = try await daemon.ctl("queue", "main")
            #expect(list.ending == .exited(0))
            #expect(list.output.contains("main: 3 messages:"))
            #expect(list.output.contains("out/3"))
            let retry = try await daemon.ctl("queue", "retry", "main", "3")
            #expect(retry.ending == .exited(1))
            #expect(retry.errors.contains("not quarantined"))

            // A daemon that is killed forgets nothing of this.
            try await daemon.kill()
            try await daemon.start()
            #expect(try await daemon.status().outbox.queued == 3)
            try await until("the oldest is known") { try await daemon.status().outbox.oldest != nil }
            let drop = try await daemon.ctl("queue", "drop", "main", "4")
            #expect(drop.ending == .exited(0))
            #expect(drop.output == "1 message dropped.\n")
            try await LabServer.started(lab)
            let far = try await LabSubscriber(lab, filter: "out/#")
            try await daemon.connect()
            let messages = try await far.received("what is left") { $0.count >= 2 }
            #expect(messages.map(\.payload) == ["3", "5"])
        }
    }
}

/// The messages that a live consumer has received.
private actor Arrived {
    private var payloads: Set<String> = []

    func add(_ payload: String) { payloads.insert(payload) }
    func has(_ payload: String) -> Bool { payloads.contains(payload) }
}
