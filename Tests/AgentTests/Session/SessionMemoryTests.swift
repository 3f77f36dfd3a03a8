import MQTT
import Session
import Support
import Testing

@testable import Agent

@Suite struct SessionMemoryTests {
    @Test func `a reload that adds sessions makes the shares smaller`() async throws {
        try await DaemonUnderTest.run(autoconnect: false) { daemon, peer in
            let driver = try await daemon.registry.driver("main")
            #expect(await driver.session.mqtt.configuration.inFlight.bytes == 16 << 20)
            for number in 1..<64 {
                try daemon.directory.write(
                    "sessions.d/s\(number).toml",
                    "endpoints = [\"mqtt://127.0.0.1:1\"]\nuser = \"u\(number)\"\nautoconnect = false\n")
            }
            try await peer.call("daemon.reload")
            for name in ["main", "s1"] {
                let driver = try await daemon.registry.driver(name)
                #expect(await driver.session.mqtt.configuration.inFlight.bytes == 4 << 20)
                #expect(await driver.session.durableConsumers.memory == 1 << 20)
            }
        }
    }
}
