import Foundation
import Support
import SupportTiming
import Testing
import Vocabulary

/// The real daemon, a real mosquitto and real networks: see `Lab` in Support for the topology. Tests wait for an event
/// or for a message to arrive; the time limits are generous and only say when to give up.
@Suite(
    .timed,
    .enabled(
        if: LabRequirements.missing.isEmpty || LabRequirements.isAllRequired,
        "cannot run here: \(LabRequirements.missing.joined(separator: ", ")); HOLDFAST_REQUIRE_ALL=1 makes this a failure"
    ))
struct EndToEnd {}

/// Runs a test with a daemon whose session `main` is connected to a server.
func withConnected(
    heartbeat: String = "5s", _ body: (Lab, LabServer, DaemonProcess) async throws -> Void
) async throws {
    try await withServer { lab, server, daemon in
        try daemon.session(heartbeat: heartbeat)
        try await daemon.startConnected()
        try await body(lab, server, daemon)
    }
}

/// Does what ``withLab(_:)`` does, with a server that is running.
func withServer(_ body: (Lab, LabServer, DaemonProcess) async throws -> Void) async throws {
    try await withLab { lab, daemon in try await body(lab, LabServer.started(lab), daemon) }
}

/// Runs a test in a lab of its own, with a daemon that is not started yet. When the test fails, it shows the events
/// that were seen and attaches everything that the programs wrote.
func withLab(_ body: (Lab, DaemonProcess) async throws -> Void) async throws {
    let events = EventRecord()
    try await Lab.run { lab in
        try await body(lab, DaemonProcess(lab, record: events))
    } explain: { lab, error in
        let outputs = await lab.outputs()
        for (name, text) in outputs {
            Attachment.record(text, named: name.replacing("/", with: "_").prefix(80) + ".txt")
        }
        let daemons = outputs.filter { $0.name.contains("holdfastd") }.map(\.text)
        return Lab.Failure(
            """
            \(error)
            Events, the last ones:
            \(await events.text)
            The daemon's words:
            \(daemons.joined(separator: "\n").suffix(4000))
            """)
    }
}
