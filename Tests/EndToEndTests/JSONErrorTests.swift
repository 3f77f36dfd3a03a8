import ControlAPI
import Foundation
import Support
import Testing

/// With --json, programs read standard error too.
extension EndToEnd {
    /// For each command, a way in which it fails, or says something besides its answer.
    private static let failures = [
        "status nobody", "list --state lost", "list --fields nothing", "top", "watch nobody", "wait nobody",
        "wait lonely --timeout 200ms", "connect nobody", "connect lonely --wait --timeout 200ms", "disconnect nobody",
        "reconnect nobody", "simulate nobody drop", "simulate main fire", "switch-room nobody r",
        "switch-room lonely r", "publish nobody t x", "publish main a/# x",
        "publish lonely t x --wait delivered --timeout 200ms", "subscribe nobody t",
        "subscribe main full/# --consumer full --count 1", "unsubscribe main nobody", "queue nobody",
        "queue drop main 99", "queue retry main 99", "publications nobody", "publications put main a/# x",
        "participants main", "network --nope", "history nobody", "history --limit 0", "check nobody", "check",
        "ping nobody", "ping", "log nobody", "log --level loud", "config check", "config show nobody", "config show",
        "config init main", "config init other --endpoint htp://x --user u", "config init other --password x",
        "config init twin --endpoint ENDPOINT --user main", "config init other --endpoint mqtt://127.0.0.1:1 --user u",
        "config init other --endpoint mqtt://127.0.0.1:1 --user u --untried --connect --timeout 200ms",
        "config edit nobody", "config edit broken", "config remove nobody", "config remove other", "config shwo",
        "instance add nobody@a",
        "instance remove nobody@a", "reload", "metrics --nope", "bugreport -o /nowhere/file --yes", "version --nope",
        "completion tcsh", "clients --fields nothing", "statsu",
    ]

    /// Runs a command with --json, and checks what it writes to standard error.
    ///
    /// - Returns: the members of its lines, `error` or `notice`.
    @discardableResult
    private func run(_ line: String, _ daemon: DaemonProcess) async throws -> [String] {
        let line = line.replacing("ENDPOINT", with: "mqtt://\(Lab.serverAddress)")
        let place = line.hasPrefix("config ") || line.hasPrefix("instance ") || line.hasPrefix("bugreport ")
        let words =
            ["env", "-u", "VISUAL", "EDITOR=true", "\(DaemonProcess.programs)/holdfastctl"]
            + line.split(separator: " ").map(String.init) + ["--json", "--socket", daemon.socket]
            + (place ? ["--config-directory", daemon.configuration] : [])
        let result = try await daemon.lab.finish(words, in: daemon.lab.host)
        if result.ending != .exited(0) { #expect(result.errors + result.output != "", "\(line): no word") }
        return result.errors.split(separator: "\n").compactMap { text in
            let object = try? JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
            let members = Set((object ?? [:]).keys).subtracting(["schema"])
            #expect(members == ["error"] || members == ["notice"], "\(line): \(text)")
            for member in members {
                #expect((object?[member] as? [String: Any])?["message"] is String, "\(line): \(text)")
            }
            return members.first
        }
    }

    @Test func `with --json, every line of standard error is JSON, whatever fails`() async throws {
        try await withServer { lab, server, daemon in
            try daemon.session(tables: "[inbox]\nmax-messages = 2")
            try daemon.session("lonely", endpoint: "mqtt://\(Lab.serverAddress):1999")
            try daemon.writeSession("broken", "endpoint = 1")
            let help = try await lab.finish(["\(DaemonProcess.programs)/holdfastctl", "--help"], in: nil).output
            let names = help.split(separator: "\n").drop { $0 != "SUBCOMMANDS:" }.dropFirst().compactMap { line in
                line.hasPrefix("  ") && !line.hasPrefix("    ") ? line.split(separator: " ").first : nil
            }
            #expect(names.count > 25)
            #expect(names.last == "See", "after the list")
            let tried = Set(Self.failures.map { String($0.prefix { $0 != " " }) })
            #expect(Set(names.dropLast().map(String.init)).subtracting(tried).isEmpty, "every command is tried")

            try await daemon.startConnected()
            // More arrives for the consumer than it has room for.
            let first = try await lab.start(
                "consumer",
                [
                    "\(DaemonProcess.programs)/holdfastctl", "subscribe", "main", "full/#", "--consumer", "full",
                    "--count", "1", "--socket", daemon.socket,
                ], in: nil)
            try await until("there is a consumer") { try await !daemon.status().inbox.consumers.isEmpty }
            try await daemon.publish("0", to: "full/0")
            #expect(try await first.ended(within: .seconds(180)) == .exited(0))
            for number in 1...5 { try await server.publish("\(number)", to: "full/\(number)") }
            try await until("messages were dropped") { try await daemon.status().inbox.dropped > 0 }

            for line in Self.failures {
                let said = try await run(line, daemon)
                if line.contains("--consumer") { #expect(said == ["notice"], "\(line)") }
            }
            let watchers = [["watch"], ["status", "--follow"], ["subscribe", "main", "t"]]
            var processes: [LabProcess] = []
            for words in watchers {
                let ctl = ["\(DaemonProcess.programs)/holdfastctl"] + words + ["--json", "--socket", daemon.socket]
                processes.append(try await lab.start("watcher", ctl, in: nil))
            }
            try await until("they watch") {
                try await daemon.status().subscriptions.contains { $0.filter == "t" }
                    && processes.prefix(2).allSatisfy { !$0.output.isEmpty }
            }
            _ = try await daemon.stop()
            for (words, process) in zip(watchers, processes) {
                try await until("\(words) says that it waits") {
                    process.errors.hasPrefix("{\"notice\":{\"message\":") && process.errors.hasSuffix("}\n")
                }
                try await process.killed()
            }
            for line in Self.failures { try await run(line, daemon) }
        }
    }
}
