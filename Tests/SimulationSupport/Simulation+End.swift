import ControlAPI
import MQTT
import NIOCore
import Support

@testable import Agent
@testable import SessionCore

// The end of a run: everything is mended, and then everything must be well, within the time that the policy promises.

extension Simulation {
    /// The longest delay of the table and the floor of a busy server, with what randomness adds to them, a heartbeat's
    /// silence, and what an attempt takes at each of two servers.
    static let bound: Duration = .seconds(64 + 64 + 64 + 2 * 40)

    func heal() async throws {
        trace?.append("everything is mended")
        for index in residents.indices {
            let host = residents[index].host
            host.disk.here { disk in
                disk.fault = nil
                disk.delay = .zero
            }
            scenario.here { scenario in
                scenario.withUplink(host) { uplink in
                    (uplink.latency, uplink.piece, uplink.resetAfter) = (Scenario.latency, nil, [:])
                    (uplink.dialFault, uplink.abortLoses) = (nil, false)
                }
            }
            await mend(host)
            scenario.here { scenario in
                scenario.unsilence(host)
            }
            try await start(index)
        }
        scenario.here { scenario in
            for server in Scenario.ServerName.allCases {
                scenario.goOn(server)
                if !scenario.isUp(server) { scenario.start(server) }
                scenario.with(server) { broker, _ in
                    (broker.refusals, broker.refusedTopics, broker.refusedFilters) = ([:], [:], [:])
                    broker.connackProperties = .init()
                    (broker.closesAfterConnack, broker.claimsSession, broker.holdsAnswers) = (false, false, false)
                }
            }
        }
        noteContext(of: Step(.welcome))
        // What was said last is still on its way, and may be the end.
        await pass(.seconds(60))
        finish()
        guard violations.isEmpty else { return }
        // A person looks, and connects what was disconnected or has failed.
        noteContext(of: Step(.connect))
        for index in mustConnect { connect(index) }
        await pass(.nanoseconds(Self.bound.nanoseconds))
        finish()
    }

    /// With one identity there is only one that can be connected.
    private var mustConnect: Range<Int> { world.sharesIdentity ? 0..<1 : residents.indices }

    func checkEnd() {
        guard !world.sharesIdentity else {
            let states = residents.compactMap { resident in
                resident.host.here { $0.driver() }?.here { $0.machine.status.state }
            }
            if !states.contains(.connected) { note(.heals, "nobody is connected: \(states)") }
            return finish()
        }
        for index in residents.indices {
            let host = residents[index].host
            guard let driver = host.here({ $0.driver() }) else {
                note(.heals, "\(host.name) does not run")
                continue
            }
            let (status, counts) = driver.here { ($0.machine.status, $0.mqtt.counts) }
            if status.state != .connected {
                note(
                    .heals, "\(host.name) is \(status.state) (\(status.reason.code)) \(Self.bound) after all was mended"
                )
            } else if counts.queued > 0 || counts.inFlight > 0 {
                note(.heals, "\(host.name) is connected and has \(counts) \(Self.bound) after all was mended")
            }
        }
        checkDisks()
        ledger.checkOutgoing { host in
            guard let disk = residents.first(where: { $0.host.name == host })?.host.disk else { return [] }
            return Set(
                disk.here { disk in
                    disk.sessions.values.flatMap(\.messages.values).compactMap {
                        Int(String(buffer: $0.message.payload))
                    }
                })
        }
        ledger.checkIncoming { host, server in
            guard let resident = residents.first(where: { $0.host.name == host }),
                let name = Scenario.ServerName(rawValue: server)
            else { return nil }
            let broker = scenario.here { $0.broker(name) }
            // What is still to be sent waits for the client to come there again.
            return broker.outgoingCount(of: resident.clientID) == 0 ? broker.epoch(of: resident.clientID) : nil
        }
        finish()
    }

    private func checkDisks() {
        for resident in residents {
            let stores = resident.host.disk.here { $0.sessions }
            for store in stores.values {
                for sentence in store.violations { note(.standard, "the store of \(resident.host.name): \(sentence)") }
                let left = store.messages.values.filter { if case .quarantined = $0.state { false } else { true } }
                if !left.isEmpty { note(.heals, "\(resident.host.name) has \(left.count) messages left in its store") }
            }
        }
    }
}
