import ControlAPI
import Foundation
import Glibc
import Support
import Testing

extension EndToEnd {
    @Test func `a daemon that is told to stop as soon as it is ready says goodbye`() async throws {
        try await withLab { lab, daemon in
            try daemon.session()
            for _ in 1...10 {
                try await daemon.launch()
                // As fast as possible: what counts is the moment after the announcement.
                while await daemon.isRunning, await !daemon.log.contains("ready: ") { try Task.checkCancellation() }
                #expect(try await daemon.stop() == .exited(0))
                #expect(await daemon.log.contains("stopping"))
            }
        }
    }

    @Test func `a wrong key breaks only its own session, at start and at reload`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session("good", heartbeat: "60s")
            try daemon.session("third", heartbeat: "60s")
            try daemon.writeSession(
                "bad",
                """
                endpoints = ["mqtt://\(Lab.serverAddress):1883"]
                user = "bad"
                  clientid = "bad"
                """)
            try await daemon.start()
            let good = try await daemon.events(of: "good")
            try await good.until(.connected)
            try await daemon.events(of: "third").until(.connected)
            var bad = try await daemon.status("bad")
            #expect(bad.state == .failed)
            #expect(bad.reason?.code == "bad-configuration")
            let text = try #require(bad.reason?.message)
            #expect(text.contains("bad.toml:3:3:"))
            #expect(text.contains("\"clientid\"") && text.contains("\"client-id\""))

            // Now the third one's file breaks, and the bad one is fixed.
            _ = await good.rest()
            try daemon.session("bad")
            try daemon.session("third", top: "autoconnect = maybe", heartbeat: "60s")
            let result = try await daemon.call(DaemonReloadMethod.self, .init())
            #expect(result.changed == ["bad"])
            #expect(result.kept == ["third"])
            #expect(result.errors.contains { "\($0)".contains("third.toml") })
            try await daemon.events(of: "bad").until(.connected)
            let third = try await daemon.status("third")
            #expect(third.state == .connected, "it goes on as it was")
            #expect(third.counters.connects == 1)
            bad = try await daemon.status("bad")
            #expect(bad.state == .connected)
            #expect(try await daemon.status("good").counters.connects == 1)
            let told = await good.rest()
            // How well its connection is doing has nothing to do with this.
            #expect(told.allSatisfy { $0.event == .qualityChanged }, "the good one did not notice: \(told.map(\.line))")
        }
    }

    @Test func `rubbish on the socket is answered with errors and does no harm`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(heartbeat: "60s")
            let events = try await daemon.startConnected()
            let raw = try await RawControl(daemon.socket)
            func isFine(_ what: String) async throws {
                let answer = try await raw.ask(
                    #"{"jsonrpc":"2.0","id":"fine","method":"session.status","params":{"session":"main"}}"#)
                #expect(answer.contains(#""id":"fine""#), "after \(what): \(answer.prefix(200))")
                #expect(answer.contains(#""state":"connected""#), "after \(what): \(answer.prefix(200))")
            }
            try await isFine("nothing")
            let cases: [(what: String, line: [UInt8], code: Int)] = [
                ("a broken line", Array(#"{"jsonrpc":"2.0","id":1,"method":"#.utf8), -32700),
                ("no UTF-8", [0x22, 0xff, 0xfe, 0x22], -32700),
                ("a zero byte", [0x00], -32700),
                ("no request", Array("[]".utf8), -32600),
                ("a number", Array("17".utf8), -32600),
                ("an unknown method", Array(#"{"jsonrpc":"2.0","id":1,"method":"session.fly"}"#.utf8), -32601),
                (
                    "an unknown member",
                    Array(#"{"jsonrpc":"2.0","id":1,"method":"session.list","params":{"x":1}}"#.utf8), -32602
                ),
                ("nested arrays", [UInt8](repeating: UInt8(ascii: "["), count: 500_000), -32700),
                (
                    "nested objects", Array(String(repeating: #"{"a":"#, count: 100_000).utf8), -32700
                ),
                (
                    "nested and closed arrays",
                    [UInt8](repeating: UInt8(ascii: "["), count: 400_000)
                        + [UInt8](repeating: UInt8(ascii: "]"), count: 400_000), -32700
                ),
            ]
            for (what, line, code) in cases {
                let answer = try await raw.ask(line)
                #expect(answer.contains(#""code":\#(code)"#), "\(what): \(answer.prefix(200))")
                try await isFine(what)
            }
            let long = try await raw.ask([UInt8](repeating: UInt8(ascii: "x"), count: 25 << 20))
            #expect(long.contains(#""error""#) && long.contains("1048576"), "25 MiB: \(long.prefix(200))")
            try await isFine("a line of 25 MiB")
            let unknown = try await raw.ask(
                #"{"jsonrpc":"2.0","id":2,"method":"session.status","params":{"session":"mian"}}"#)
            #expect(unknown.contains("unknown-session") && unknown.contains("main"), "\(unknown)")
            #expect(try await daemon.status().counters.connects == 1)
            let told = await events.rest()
            #expect(!told.contains { $0.event == .stateChanged })
            await raw.close()
        }
    }

    @Test func `programs that never read neither fill the daemon's memory nor block others`() async throws {
        try await withConnected { lab, _, daemon in
            // One that holds as much memory as a program can, and does not finish.
            let unfinished = try await RawControl(daemon.socket)
            try await unfinished.pour([UInt8](repeating: UInt8(ascii: "x"), count: 1 << 16), maximum: 23 << 20)
            for number in 1...20 {
                try await daemon.publish("\(number) \(String(repeating: "x", count: 64 << 10))", to: "big")
            }
            // Otherwise they would have waited until it was.
            let log = await daemon.log
            #expect(!log.contains("closed a stalled connection"), "\(log)")
            let call = #"{"jsonrpc":"2.0","id":1,"method":"session.list"}"#
            let batch = "[" + Array(repeating: call, count: 500).joined(separator: ",") + "]\n"
            let watch = #"{"jsonrpc":"2.0","id":1,"method":"session.watch","params":{"since":0}}"# + "\n"
            let subscribe =
                #"{"jsonrpc":"2.0","id":1,"method":"message.subscribe","params":{"session":"main","filter":"big"}}"#
                + "\n"
            let hostile: [(text: String, maximum: Int)] = [
                (call + "\n", 1 << 20), (batch, 1 << 20), (watch, 10_000), (subscribe, 3000),
                (String(repeating: "x", count: 1 << 16), 23 << 20), (String(repeating: "[", count: 1 << 16), 23 << 20),
            ]
            var connections: [RawControl] = []
            for number in 0..<24 {
                let raw = try await RawControl(daemon.socket)
                let (text, maximum) = hostile[number % hostile.count]
                try await raw.pour(Array(text.utf8), maximum: maximum)
                connections.append(raw)
            }
            let payload = String(repeating: "x", count: 64 << 10)
            for number in 1...100 {
                try await daemon.publish("\(number) \(payload)", to: "big")
            }
            let memory = try #require(await daemon.residentMemory)
            #expect(memory < 128 << 10, "\(memory) KiB")
            for raw in [unfinished] + connections { await raw.close() }
            #expect(try await daemon.status().state == .connected)
        }
    }

    @Test func `the memory of large messages goes back to the system when they are delivered`() async throws {
        try await withConnected { lab, _, daemon in
            let before = try #require(await daemon.residentMemory)
            let payload = String(repeating: "x", count: 15 << 20)
            for number in 1...4 { try await daemon.publish("\(number) \(payload)", to: "big") }
            try await until("all are delivered") { try await daemon.status().outbox.bytes == 0 }
            try await until("the memory is back") {
                try #require(await daemon.residentMemory) < before + 32 << 10
            }
        }
    }

    @Test func `clients names the programs that are connected, and what they receive`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            let consumer = try await lab.start(
                "consumer",
                [
                    "\(DaemonProcess.programs)/holdfastctl", "subscribe", "main", "plant/#", "--consumer", "billing",
                    "--socket", daemon.socket,
                ], in: nil)
            try await until("the consumer is attached") {
                try await daemon.status().inbox.consumers.contains { $0.attached }
            }
            let clients = try await daemon.ctl("clients")
            let lines = clients.output.split(separator: "\n")
            #expect(lines.first?.hasSuffix("programs are connected:") == true, "\(clients)")
            let line = lines.first { $0.contains("main: consumer billing") }
            #expect(line?.split(separator: " ").prefix(2) == ["holdfastctl", "\(consumer.pid)"], "\(clients)")
            try await consumer.killed()
            let json = try await daemon.ctl("clients", "--json")
            #expect(
                json.output.contains(#""schema":1"#) && json.output.contains(#""program":"holdfastctl""#), "\(json)")
        }
    }

    @Test func `a fault is simulated for a user with the role control, and for no other`() async throws {
        try await withServer { lab, _, daemon in
            try lab.write("\(daemon.configuration)/holdfast.toml", "[access]\nobserve = [\"anyone\"]\n")
            try daemon.session()
            let events = try await daemon.startConnected()
            chmod(daemon.socket, 0o666)
            let denied = try await daemon.ctl("simulate", "main", "drop", user: "65534")
            #expect(denied.ending == .exited(5), "\(denied)")
            #expect(denied.errors.contains("the role control"), "\(denied)")
            #expect(try await daemon.status().counters.outages == 0)
            let simulated = try await daemon.ctl("simulate", "main", "drop")
            #expect(simulated.ending == .exited(0), "\(simulated)")
            #expect(try await events.until(.reconnecting).reason?.code == "reset")
            #expect(try await events.until(.connected).resumed == true)
        }
    }

    /// As where the package that makes a group is installed after the file that names it was read.
    @Test func `the status looks up again which groups do not exist`() async throws {
        try await withLab { lab, daemon in
            let groups = ["root:x:0:", "nogroup:x:65534:"]
            try lab.host.groups(groups)
            try lab.write("\(daemon.configuration)/holdfast.toml", "[access]\nobserve = [\"group:later\"]\n")
            try await daemon.start()
            func missing() async throws -> [String]? {
                try await daemon.call(DaemonStatusMethod.self, .init()).missingAccounts
            }
            #expect(try await missing() == ["group:later"])
            try lab.host.groups(groups + ["later:x:4711:"])
            #expect(try await missing() == [])
        }
    }

    @Test func `holdfastctl has an exit code for each outcome`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session()
            try daemon.session("lonely", endpoint: "mqtt://\(Lab.serverAddress):1999")
            try daemon.writeSession(
                "hopeless",
                """
                endpoints = ["mqtt://\(Lab.serverAddress):1999"]
                user = "hopeless"
                autoconnect = false
                [reconnect]
                give-up-attempts = 1
                """)
            // However long the network is broken before its disconnect, it takes its connection for a good one: it sends
            // nothing on its own. The presence timeout limits the keep-alive.
            try daemon.session(
                "resident", top: "room = \"plant\"", heartbeat: "600s", tables: "[presence]\ntimeout = \"1h\"")
            try await daemon.startConnected()
            try await daemon.events(of: "resident").until(.connected)

            let waited = try await daemon.ctl("wait", "main")
            #expect(waited.ending == .exited(0), "\(waited)")
            let checked = try await daemon.ctl("status", "main", "--check")
            #expect(checked.ending == .exited(0), "\(checked)")
            let unknown = try await daemon.ctl("status", "nobody")
            #expect(unknown.ending == .exited(1), "\(unknown)")
            #expect(unknown.errors.contains("nobody"))
            let log = try await daemon.ctl("log", "mian")
            #expect(log.ending == .exited(1), "\(log)")
            #expect(log.errors.contains("there is no session") && log.errors.contains("did you mean main?"), "\(log)")
            let usage = try await daemon.ctl("publish", "main")
            #expect(usage.ending == .exited(2), "\(usage)")
            let verb = try await daemon.ctl("fly")
            #expect(verb.ending == .exited(2), "\(verb)")
            let check = try await daemon.ctl("status", "--check")
            #expect(check.ending == .exited(3), "\(check)")
            let late = try await daemon.ctl("wait", "lonely", "--timeout", "300ms")
            #expect(late.ending == .exited(4), "\(late)")
            try await until("what is so is not waited for") {
                let now = try await daemon.ctl("wait", "main", "--timeout", "0")
                // Even then, the command gives the daemon a second to answer; a busy machine may take longer.
                if now.errors.contains("does not answer on") { return false }
                #expect(now.ending == .exited(0), "\(now)")
                return true
            }
            let connected = try await daemon.ctl("connect", "main", "--wait")
            #expect(connected.ending == .exited(0), "\(connected)")
            let failed = try await daemon.ctl("connect", "hopeless", "--wait")
            #expect(failed.ending == .exited(3), "\(failed)")
            #expect(failed.errors.contains("hopeless has failed"), "\(failed)")
            let unconnected = try await daemon.ctl("connect", "lonely", "--wait", "--timeout", "300ms")
            #expect(unconnected.ending == .exited(4), "\(unconnected)")
            let stranger = try await daemon.ctl("status", user: "65534")
            #expect(stranger.ending == .exited(5), "\(stranger)")
            #expect(stranger.errors.contains("holdfast"), "\(stranger)")

            let undelivered = try await daemon.ctl(
                "publish", "lonely", "t", "x", "--wait", "delivered", "--timeout", "9s")
            #expect(undelivered.ending == .exited(4), "\(undelivered)")
            #expect(undelivered.errors.contains("message 1 is accepted, but not delivered yet"), "\(undelivered)")

            let json = try await daemon.ctl("status", "main", "--json")
            let object = try #require(
                JSONSerialization.jsonObject(with: Data(json.output.utf8)) as? [String: Any], "\(json)")
            #expect(object["schema"] as? Int == 1)
            #expect(object["session"] as? String == "main")
            #expect(object["state"] as? String == "connected")

            let far = try await LabSubscriber(lab, filter: "from/ctl")
            let published = try await daemon.ctl(
                "publish", "main", "from/ctl", "hello", "--wait", "delivered", "--json")
            #expect(published.ending == .exited(0), "\(published)")
            #expect(published.output.contains(#""delivered":true"#), "\(published)")
            try await far.received("the message is there") { $0.map(\.payload) == ["hello"] }

            try await lab.breakNetwork()
            let unheard = try await daemon.ctl("disconnect", "resident")
            #expect(unheard.ending == .exited(1), "\(unheard)")
            #expect(unheard.errors.contains("others in the room may see the session"), "\(unheard)")
            try await lab.healNetwork()

            await daemon.pause()
            let hung = try await daemon.ctl("wait", "main", "--timeout", "1s")
            #expect(hung.ending == .exited(4), "\(hung)")
            #expect(hung.errors.contains("does not answer on \(daemon.socket)"), "\(hung)")
            await daemon.resume()

            _ = try await daemon.stop()
            let gone = try await daemon.ctl("status")
            #expect(gone.ending == .exited(6), "\(gone)")
            #expect(gone.errors.contains("start the daemon that uses this socket"), "\(gone)")
        }
    }

    @Test func `connect, disconnect and reconnect take several sessions or all`() async throws {
        try await withServer { lab, _, daemon in
            for name in ["gw-10", "gw-2", "gw-3"] { try daemon.session(name, top: "autoconnect = false") }
            try await daemon.start()
            let all = try await daemon.ctl("connect", "--all", "--wait", "--timeout", "3min")
            #expect(all.ending == .exited(0), "\(all)")
            #expect(all.output == "gw-2 is connected.\ngw-3 is connected.\ngw-10 is connected.\n")
            let paths = try await daemon.ctl("network", "--fields", "session")
            #expect(paths.output == "gw-2\ngw-3\ngw-10\n", "\(paths)")
            let two = try await daemon.ctl("disconnect", "gw-10", "gw-2", "gw-10")
            #expect(two.ending == .exited(0), "\(two)")
            #expect(two.output == "gw-10 is disconnected.\ngw-2 is disconnected.\n")
            #expect(try await daemon.status("gw-3").state == .connected)

            // The others are not held up by one that fails.
            let some = try await daemon.ctl("connect", "nobody", "gw-2", "--wait", "--timeout", "3min")
            #expect(some.ending == .exited(1), "\(some)")
            #expect(some.output == "gw-2 is connected.\n", "\(some)")
            #expect(some.errors.contains("no session \"nobody\""), "\(some)")
            let worst = try await daemon.ctl("reconnect", "nobody", "gw-10", "--wait", "--timeout", "3min", "--json")
            #expect(worst.ending == .exited(1), "\(worst)")
            #expect(worst.output.contains(#""session":"gw-10""#), "\(worst)")
            #expect(worst.output.contains(#""state":"connected""#), "\(worst)")
            let lines = worst.errors.split(separator: "\n")
            #expect(lines.count == 1 && lines[0].contains("unknown-session"), "\(worst)")

            _ = try await daemon.stop()
            let gone = try await daemon.ctl("disconnect", "--all")
            #expect(gone.ending == .exited(6), "\(gone)")
        }
    }

    @Test func `fields of participants, publications and paths are printed for scripts`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session(top: "room = \"plant-7\"\ndevice = \"first\"")
            try await daemon.startConnected()
            try await until("the session sees itself in the room") {
                try await !daemon.call(RoomParticipantsMethod.self, .init(session: "main")).participants.isEmpty
            }
            let participants = try await daemon.ctl("participants", "main", "--fields", "user,device,state")
            #expect(participants.output == "main\tfirst\tonline\n", "\(participants)")
            _ = try await daemon.ctl("publications", "put", "main", "lamp", "on")
            let publications = try await daemon.ctl("publications", "main", "--fields", "topic,qos")
            #expect(publications.output == "lamp\t1\n", "\(publications)")
            let paths = try await daemon.ctl("network", "--fields", "endpoint,session")
            #expect(paths.output == "mqtt://\(Lab.serverAddress):1883\tmain\n", "\(paths)")
            let clients = try await daemon.ctl("clients", "--fields", "program,client,calls.inFlight")
            #expect(clients.output.hasSuffix("holdfastctl\tholdfastctl \(Release.version)\t1\n"), "\(clients)")
            for words in [["participants", "main"], ["publications", "main"], ["network"], ["clients"]] {
                let both = try await lab.finish(
                    ["\(DaemonProcess.programs)/holdfastctl"] + words + ["--fields", "session", "--json"], in: nil)
                #expect(both.ending == .exited(2), "\(both)")
            }
        }
    }

    @Test(arguments: [
        "watch | head -1", "watch --json | head -1", "status --follow | head -1", "subscribe main t | true",
        "ping main --interval 10min | head -1",
    ])
    func `a continuous command ends when its output is closed`(_ line: String) async throws {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            // Nothing happens to the session, so the command must notice on its own that its output is closed.
            let program = "'\(DaemonProcess.programs)/holdfastctl' \"$@\" --socket '\(daemon.socket)'"
            let script = "holdfastctl() { \(program); }; holdfastctl \(line)"
            let result = try await lab.finish(["bash", "-c", script], in: lab.host)
            #expect(result.ending == .exited(0) && result.errors.isEmpty, "\(result)")
            #expect(result.output.split(separator: "\n").count == (line.hasSuffix("true") ? 0 : 1), "\(result)")
        }
    }

    @Test func `a publish of lines that was started with nohup survives the hang-up of its terminal`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            let lines = "\(daemon.configuration)/lines"
            mkfifo(lines, 0o600)
            let ctl = "'\(DaemonProcess.programs)/holdfastctl' publish main t --lines --socket '\(daemon.socket)'"
            let process = try await lab.start("nohup", ["sh", "-c", "exec nohup \(ctl) <'\(lines)'"], in: nil)
            // For reading as well, so that opening does not wait for the other end.
            let end = open(lines, O_RDWR | O_CLOEXEC)
            write(end, "a\n", 2)
            try await until("the first line is accepted") { try await daemon.status().outbox.queued == 1 }
            await process.signal(SIGHUP)
            write(end, "b\n", 2)
            close(end)
            #expect(try await process.ended(within: .seconds(180)) == .exited(0))
            #expect(try await daemon.status().outbox.queued == 2)
        }
    }

    @Test func `output that cannot be written is an error, and output that cannot be written yet is written later`()
        async throws
    {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            let list = "'\(DaemonProcess.programs)/holdfastctl' list --socket '\(daemon.socket)'"
            let full = try await lab.finish(["sh", "-c", "\(list) >/dev/full"], in: nil)
            #expect(full.ending == .exited(1), "\(full)")
            let sentence = "the output cannot be written: No space left on device"
            #expect(full.errors == "holdfastctl: \(sentence)\n", "\(full)")
            let json = try await lab.finish(["sh", "-c", "\(list) --json >/dev/full"], in: nil)
            #expect(json.ending == .exited(1), "\(json)")
            #expect(json.errors.contains("\"message\":\"\(sentence)\""), "\(json)")
            // Another program has filled the pipe, and made it non-blocking.
            let fill = "python3 -c 'import os; os.set_blocking(1, False); os.write(1, bytes(65536))'"
            let slow = try await lab.finish(
                ["sh", "-c", "(\(fill); \(list)) | (sleep 1; tail -c +65537)"], in: nil)
            #expect(slow.errors.isEmpty && slow.output.contains("\nmain "), "\(slow)")
        }
    }

    @Test func `bytes that are not text, and descriptors that are closed, are not taken for something else`()
        async throws
    {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start(after: "exec <&- >&- 2>&-")
            let pid = try await daemon.call(DaemonStatusMethod.self, NoParameters()).pid
            for number in 0...2 {
                let file = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(pid)/fd/\(number)")
                #expect(file == "/dev/null", "the daemon's descriptor \(number)")
            }
            func run(_ line: String) async throws -> (ending: LabProcess.Ending, output: String, errors: String) {
                let command = "'\(DaemonProcess.programs)/holdfastctl' --socket '\(daemon.socket)'"
                return try await lab.finish(["sh", "-c", line.replacing("holdfastctl", with: command)], in: nil)
            }
            for line in [#"publish main "a$(printf '\377')" x"#, #"publish main a "$(printf '\377\376')""#] {
                let odd = try await run("holdfastctl \(line)")
                #expect(odd.ending == .exited(2) && odd.errors.contains("is not UTF-8"), "\(odd)")
            }
            #expect(try await daemon.status().outbox.queued == 0)
            for line in ["holdfastctl status >&-", "holdfastctl publish main a --file - <&-"] {
                let closed = try await run(line)
                #expect(closed.ending == .exited(1) && closed.errors.contains("Bad file descriptor"), "\(closed)")
            }
            let below = try await run("holdfastctl publish main a -5.5 --expiry 24h")
            #expect(below.ending == .exited(0), "\(below)")
        }
    }

    @Test func `check leaves the session alone`() async throws {
        try await withServer { lab, server, daemon in
            try daemon.session(heartbeat: "60s")
            let events = try await daemon.startConnected()
            let before = try await daemon.status()
            _ = await events.rest()
            for _ in 1...3 {
                let check = try await daemon.ctl("check", "main")
                #expect(check.ending == .exited(0), "\(check)")
            }
            let after = try await daemon.status()
            #expect(after.state == .connected && after.since == before.since)
            #expect(after.counters == before.counters)
            let told = await events.rest()
            #expect(!told.contains { $0.event == .stateChanged })
            let log = await server.log.split(separator: "\n")
            #expect(log.count { $0.contains("New client connected") && $0.contains(" as main-check ") } == 3)
            #expect(log.count { $0.contains("New client connected") && $0.contains(" as main ") } == 1)
            #expect(!log.contains { $0.contains("Client main ") }, "\(log)")
        }
    }
}
