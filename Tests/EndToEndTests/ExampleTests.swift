import Foundation
import MQTT
import NIOPosix
import Support
import Testing

/// The example of the module MQTT, which uses only that module and NIO.
extension EndToEnd {
    /// Line-buffered, because it writes to a file that is read while it runs.
    private static let example = ["stdbuf", "-oL", "\(DaemonProcess.programs)/mqtt-client"]

    @Test func `the example of the module MQTT waits for a real server, and receives what it published`() async throws {
        try await withLab { lab, _ in
            let program = try await lab.start(
                "mqtt-client", Self.example + ["127.0.0.1", "1883", "100"], in: lab.server)
            try await until("it is refused") { program.output.contains("onnection refused") }
            try await LabServer.started(lab)
            #expect(try await program.ended(within: .seconds(180)) == .exited(0))
            for number in 1...100 {
                for qos in 1...2 {
                    let line = "received \(number) of QoS \(qos)\n"
                    #expect(program.output.ranges(of: line).count == 1)
                }
            }
        }
    }

    @Test func `the example of the module MQTT continues after the model server drops it`() async throws {
        let server = LoopbackServer(eventLoop: MultiThreadedEventLoopGroup.singleton.next())
        try await server.start()
        await server.set { $0.answersMessages = false }
        try await withLab { lab, _ in
            let program = try await lab.start(
                "mqtt-client", Self.example + ["127.0.0.1", "\(await server.port)", "1"], in: nil)
            try await until("it has subscribed") { program.output.contains("subscribed example: ") }
            await server.set { $0.answersMessages = true }
            await server.drop()
            try await until("everything is acknowledged") {
                (1...3).allSatisfy { program.output.contains("delivered \($0): ") }
            }
            // Before that, there may be no connection to publish on: what was answered last may have been on the old one.
            try await until("it has come back") { program.output.contains("connected, resumed\n") }
            for payload in ["1 of QoS 1", "1 of QoS 2"] { await server.publish("example", payload) }
            #expect(try await program.ended(within: .seconds(180)) == .exited(0))
        }
        try await server.stop()
    }

    @Test(arguments: [
        ("MQTT/MQTT.docc/A-client-in-fifty-lines.md", "MQTTClient/Session.swift", 4),
        ("HoldfastClient/HoldfastClient.docc/Answer-every-message.md", "Swift/Echo.swift", 3),
    ])
    func `the article shows the example`(_ article: String, _ example: String, _ least: Int) throws {
        let example = try repositoryFile("Examples/\(example)")
        let blocks = try repositoryFile("Sources/\(article)").components(separatedBy: "```swift\n").dropFirst()
            .compactMap { $0.components(separatedBy: "\n```").first }
        #expect(blocks.count >= least)
        for block in blocks {
            let lines = block.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
            let all = example.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
            #expect(all.firstRange(of: lines) != nil, "\(block)")
        }
    }
}
