import ControlAPI
import Glibc
import Support
import Testing

extension EndToEnd {
    @Test(arguments: ["check", "show"])
    func `config check and config show say that the daemon reads another directory`(_ verb: String) async throws {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            let errors = try await daemon.ctl("config", verb).errors.split { $0.isWhitespace }.joined(separator: " ")
            let sentence = "the daemon at this socket reads \(daemon.configuration), and not /etc/holdfast"
            #expect(errors.contains(sentence), "\(errors)")
        }
    }

    /// On a host that is busy it takes longer, so one run that had time is enough.
    @Test func `config check waits for a daemon that does not answer for a second only`() async throws {
        try await withLab { lab, daemon in
            try daemon.session(top: "autoconnect = false")
            try await daemon.start()
            await daemon.pause()
            var times: [Duration] = []
            for _ in 1...20 where (times.last ?? .seconds(180)) >= .seconds(5) {
                let begun = ContinuousClock.now
                let check = try await daemon.ctl("config", "check")
                times.append(begun.duration(to: .now))
                #expect(!check.errors.contains("the daemon at this socket"), "\(check)")
            }
            #expect(try #require(times.last) < .seconds(5), "other commands wait for 10 s: \(times)")
            await daemon.resume()
        }
    }

    @Test(arguments: [
        "subscribe main t", "subscribe main t --consumer c", "watch main", "watch main --json", "status main --follow",
    ])
    func `a command that follows a session ends when that is removed`(_ words: String) async throws {
        try await withServer { lab, _, daemon in
            try daemon.session()
            try await daemon.start()
            try await daemon.events(of: "main").until(.connected)
            let command = "exec '\(DaemonProcess.programs)/holdfastctl' \(words) --socket '\(daemon.socket)'"
            let process = try await lab.start("follower", ["sh", "-c", command], in: nil)
            // A watch prints at once what it begins with.
            try await until("it is served") {
                if !process.output.isEmpty { return true }
                let clients = try await daemon.ctl("clients", "--json").output
                return clients.replacing(" ", with: "").contains(#""session":"main""#)
            }
            #expect(unlink("\(daemon.configuration)/sessions.d/main.toml") == 0)
            #expect(try await daemon.ctl("reload").ending == .exited(0))
            #expect(try await process.ended(within: .seconds(180)) == .exited(1))
            #expect(process.errors.contains("session main was removed from the configuration"), "\(process.errors)")
        }
    }

    @Test func `the messages of a session that was removed do not go to the server of another one of its name`()
        async throws
    {
        try await withServer { lab, first, daemon in
            var options = LabServer.Options()
            options.port = 1884
            let second = try await LabServer.started(lab, options)
            let file = "\(daemon.configuration)/sessions.d/valve.toml"
            try daemon.session("valve", top: "autoconnect = false")
            try await daemon.start()
            try await daemon.publish("open", to: "of/first", session: "valve")
            #expect(unlink(file) == 0)
            #expect(try await daemon.ctl("reload").ending == .exited(0))

            try daemon.session("valve", endpoint: "mqtt://\(Lab.serverAddress):1884")
            for isRestarted in [false, true] {
                if isRestarted {
                    _ = try await daemon.stop()
                    try await daemon.start()
                }
                let reload = try await daemon.ctl("reload")
                #expect(reload.ending == .exited(1), "\(reload)")
                let sentence = "1 accepted message of a session valve that was removed"
                #expect(reload.errors.replacing("\n", with: " ").contains(sentence), "\(reload)")
                #expect(reload.errors.contains("mqtt://\(Lab.serverAddress):1883"), "\(reload)")
                #expect(try await daemon.status("valve").reason?.code == "bad-configuration")
            }

            // The file of the first one returns, and its message goes where it belongs.
            try daemon.session("valve")
            #expect(try await daemon.ctl("reload").ending == .exited(0))
            try await daemon.publish("close", to: "of/first", session: "valve", wait: .delivered)
            #expect(try await daemon.ctl("disconnect", "valve").ending == .exited(0))
            try await daemon.publish("open", to: "of/first", session: "valve")
            #expect(unlink(file) == 0)
            #expect(try await daemon.ctl("reload").ending == .exited(0))

            // Or what is left of it is dropped.
            try daemon.session("valve", endpoint: "mqtt://\(Lab.serverAddress):1884")
            #expect(try await daemon.ctl("reload").ending == .exited(1))
            let dropped = try await daemon.ctl("queue", "drop", "valve", "--all", "--any-state")
            #expect(dropped.ending == .exited(0) && dropped.output == "1 accepted message dropped.\n", "\(dropped)")
            #expect(try await daemon.ctl("reload").ending == .exited(0))
            let events = try await daemon.events(of: "valve")
            try await daemon.connect("valve")
            try await events.until(.connected)
            try await daemon.publish("open", to: "of/second", session: "valve", wait: .delivered)
            #expect(await second.log.contains("of/second"))
            #expect(await !second.log.contains("of/first"))
            #expect(await first.log.contains("of/first"))
        }
    }
}
