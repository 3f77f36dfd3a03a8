import ControlAPI
import Foundation
import Support
import Testing

/// The metrics and the alert rules of Examples/Monitoring, with the real Prometheus.
extension EndToEnd {
    private static let monitoring = repositoryRoot.appendingPathComponent("Examples/Monitoring").path

    @Test func `Prometheus reads the listener, and promtool the text file`() async throws {
        try await withServer { lab, _, daemon in
            try daemon.session()
            let file = "\(lab.directory)/holdfast.prom"
            try lab.write(
                "\(daemon.configuration)/holdfast.toml",
                "[metrics]\nlisten = \"127.0.0.1:9464\"\ntextfile = \"\(file)\"\n")
            try await daemon.startConnected()
            try await daemon.publish("1", to: "a", wait: .delivered)
            try lab.write(
                "prometheus.yml",
                """
                global: {scrape_interval: 1s, evaluation_interval: 1s}
                rule_files: ["\(Self.monitoring)/alerts.yml"]
                scrape_configs: [{job_name: holdfast, static_configs: [{targets: ["127.0.0.1:9464"]}]}]
                """)
            let prometheus = try await lab.start(
                "prometheus",
                [
                    "prometheus", "--config.file=\(lab.directory)/prometheus.yml",
                    "--storage.tsdb.path=\(lab.directory)/prometheus", "--web.listen-address=127.0.0.1:9090",
                ], in: lab.host)
            func value(_ query: String) async throws -> String {
                guard await prometheus.isRunning else { throw Lab.Failure("prometheus ended: \(prometheus.errors)") }
                return try await lab.finish(
                    ["promtool", "query", "instant", "http://127.0.0.1:9090", query], in: lab.host
                ).output
            }
            for query in [
                "holdfast_session_published_total{session=\"main\"} == 1", "holdfast_build_info == 1",
                "holdfast_store_commit_seconds_bucket{le=\"+Inf\"} > 0", "up{job=\"holdfast\"} == 1",
            ] {
                try await until("Prometheus has \(query)") { try await value(query).contains(" => ") }
            }
            #expect(try await !value("ALERTS{alertstate=\"firing\"}").contains(" => "))

            let checked = try await lab.finish(["sh", "-c", "promtool check metrics <'\(file)'"], in: nil)
            #expect(!checked.errors.contains("error while linting"), "\(checked.errors)")
            try await until("the file has the message") {
                (try? String(contentsOfFile: file, encoding: .utf8))?
                    .contains("\nholdfast_session_published_total{session=\"main\"} 1\n") == true
            }
        }
    }

    @Test func `a daemon that cannot start leaves no metrics of an earlier one`() async throws {
        try await withLab { lab, daemon in
            let file = try lab.write("holdfast.prom", "holdfast_build_info 1\n")
            try lab.write("\(daemon.configuration)/holdfast.toml", "[metrics]\ntextfile = \"\(file)\"\n")
            try lab.write(
                "\(daemon.configuration)/sessions.d/main.toml", "endpoints = [\"mqtt://a.example\"]\nuser = \"u\"\n")
            try lab.write("\(daemon.state)/lock/file", "")
            let process = try await daemon.launch()
            #expect(try await process.ended(within: .seconds(180)) == .exited(73), "\(process.errors)")
            #expect(!FileManager.default.fileExists(atPath: file))
        }
    }

    @Test func `the alert rules pass their tests`() async throws {
        try await withLab { lab, _ in
            for words in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]] {
                let result = try await lab.finish(
                    ["env", "--chdir", Self.monitoring, "promtool"] + words, in: nil)
                #expect(result.ending == .exited(0), "\(result.output)\(result.errors)")
            }
        }
    }
}
