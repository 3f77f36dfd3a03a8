import ControlAPI
import Foundation
import Support
import Testing

extension EndToEnd {
    /// Whether an example runs until somebody ends it.
    private static func isEndless(_ words: [String]) -> Bool {
        switch words.first {
        case "watch", "top": true
        case "subscribe": !words.contains("--count")
        case "ping": !words.contains { $0.hasPrefix("-c") || $0.hasPrefix("--count") }
        default: words.contains("--follow") || words.contains("-f")
        }
    }

    /// Except for `config init`, whose examples name a server that does not exist.
    @Test func `the examples of the documentation work as they are written`() async throws {
        try await withConnected { lab, _, daemon in
            try lab.write("r.json", "{}")
            // An example waits for one.
            let command = try await daemon.ctl("publish", "main", "plant/7/commands/open", "1", "--retain")
            #expect(command.ending == .exited(0), "\(command)")
            var count = 0
            for file in DocumentedCommands.files where file != "Documentation/Troubleshooting.md" {
                for words in try DocumentedCommands.of(file).typed
                where !Self.isEndless(words) && words.prefix(2) != ["config", "init"] {
                    let line =
                        ["env", "--chdir", lab.directory, "\(DaemonProcess.programs)/holdfastctl"] + words
                        + ["--socket", daemon.socket]
                    let result = try await lab.finish(line, in: lab.host)
                    #expect(result.ending == .exited(0), "\(file): \(words.joined(separator: " ")): \(result)")
                    count += 1
                }
            }
            #expect(count >= 15)
        }
    }
}
