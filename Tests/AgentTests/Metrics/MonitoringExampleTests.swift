import ControlAPI
import Glibc
import Support
import Testing

@testable import Agent

/// The dashboard and the alert rules in Examples/Monitoring.
struct MonitoringExampleTests {
    /// Returns what a query may name: every sample of every family that a daemon has.
    private static func samples(_ text: String) -> Set<String> {
        var samples: Set<String> = []
        for line in text.split(separator: "\n") where line.hasPrefix("# TYPE ") {
            let words = line.split(separator: " ").map(String.init)
            switch words[3] {
            case "counter": samples.insert(words[2] + "_total")
            case "info": samples.insert(words[2] + "_info")
            case "histogram": samples.formUnion(["_bucket", "_count", "_sum"].map { words[2] + $0 })
            default: samples.insert(words[2])
            }
        }
        return samples
    }

    @Test(arguments: ["alerts.yml", "grafana-dashboard.json"])
    func `the examples use only metrics that exist`(file: String) async throws {
        let text = try repositoryFile("Examples/Monitoring/\(file)")
        let names = Set(text.matches(of: /holdfast_[a-z_]+/).map { String($0.output) })
        #expect(names.count > 5)
        try await DaemonUnderTest.run { daemon in
            _ = try await daemon.watcher()
            let samples = Self.samples(await daemon.daemon.metrics().text)
            #expect(names.subtracting(samples).sorted() == [])
        }
    }

    @Test func `the dashboard is JSON`() throws {
        let text = try repositoryFile("Examples/Monitoring/grafana-dashboard.json")
        let dashboard = try JSONValue(parsing: Array(text.utf8)[...])
        guard case .array(let panels)? = dashboard["panels"] else {
            Issue.record("there are no panels")
            return
        }
        #expect(Set(panels.map { $0["id"] ?? .null }).count == panels.count)
    }
}
