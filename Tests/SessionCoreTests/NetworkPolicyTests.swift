import Testing

@testable import SessionCore

private let eth0 = NetworkLink(name: "eth0", index: 2, type: .ethernet)
private let wlan0 = NetworkLink(name: "wlan0", index: 3, type: .wifi)
private let wwan0 = NetworkLink(name: "wwan0", index: 4, type: .cellular)
private let tun0 = NetworkLink(name: "tun0", index: 5, type: .vpn)
private let eth1 = NetworkLink(name: "eth1", index: 6, type: .ethernet)
private let all = [eth0, wlan0, wwan0, tun0, eth1]

private func policy(
    interfaces: [String] = [], types: [NetworkType] = [], metered: MeteredUse = .allow
) -> NetworkPolicy {
    var policy = NetworkPolicy()
    (policy.interfaces, policy.types, policy.metered) = (interfaces, types, metered)
    return policy
}

@Suite struct `Which networks a session may use` {
    struct Case: CustomTestStringConvertible {
        var policy: NetworkPolicy
        var own: NetworkLink?
        var preferred: [NetworkLink]
        var testDescription: String {
            "\(policy.interfaces) \(policy.types) \(policy.metered) own \(own?.name ?? "none")"
        }
    }

    @Test(arguments: [
        // Named interfaces: in the order of the list, but the kernel's own choice first, if it is one of them.
        Case(policy: policy(interfaces: ["wlan0", "eth0"]), own: tun0, preferred: [wlan0, eth0]),
        Case(policy: policy(interfaces: ["wlan0", "eth0"]), own: eth0, preferred: [eth0, wlan0]),
        Case(policy: policy(interfaces: ["wlan0", "eth0"]), own: nil, preferred: [wlan0, eth0]),
        Case(policy: policy(interfaces: ["usb0"]), own: eth0, preferred: []),
        // Types: in the order of the list, and of the interfaces' numbers.
        Case(policy: policy(types: [.wifi, .ethernet]), own: tun0, preferred: [wlan0, eth0, eth1]),
        Case(policy: policy(types: [.wifi, .ethernet]), own: eth1, preferred: [eth1, wlan0, eth0]),
        Case(policy: policy(types: [.loopback]), own: eth0, preferred: []),
        // Both: an interface has to be named and of a type.
        Case(
            policy: policy(interfaces: ["wwan0", "eth1", "eth0"], types: [.ethernet]), own: nil,
            preferred: [eth1, eth0]
        ),
        // Metered networks last, also the kernel's own choice.
        Case(policy: policy(metered: .avoid), own: eth1, preferred: [eth1, eth0, wlan0]),
        Case(policy: policy(metered: .avoid), own: wwan0, preferred: [eth0, wlan0, eth1, wwan0]),
        Case(policy: policy(metered: .avoid), own: tun0, preferred: [tun0, eth0, wlan0, eth1]),
        Case(policy: policy(types: [.cellular, .wifi], metered: .avoid), own: wwan0, preferred: [wlan0, wwan0]),
        Case(policy: policy(interfaces: ["wwan0", "tun0"], metered: .avoid), own: eth0, preferred: [tun0, wwan0]),
    ])
    func `are tried in this order`(example: Case) {
        #expect(example.policy.isBinding)
        #expect(example.policy.preferred(among: all, own: example.own) == example.preferred)
    }

    @Test func `are all of them by default`() {
        #expect(!NetworkPolicy().isBinding)
        #expect(all.allSatisfy(NetworkPolicy().allows))
    }

    @Test func `may include the kernel's own choice before it is listed`() {
        #expect(policy(types: [.vpn]).preferred(among: [], own: tun0) == [tun0])
    }
}
