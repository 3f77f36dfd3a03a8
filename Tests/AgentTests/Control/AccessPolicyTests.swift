import Configuration
import ControlAPI
import Glibc
import MQTT
import Testing

@testable import Agent

struct AccessPolicyTests {
    private static func peer(uid: UInt32 = 1000, groups: Set<UInt32> = [1000]) -> Peer {
        Peer(pid: 1, uid: uid, gid: 1000, groups: groups)
    }

    private static func roles(_ peer: Peer, _ change: (inout AccessConfiguration) -> Void) -> Set<Role> {
        var configuration = AccessConfiguration()
        (configuration.observe, configuration.message, configuration.control) = ([], [], [])
        change(&configuration)
        let accounts = Accounts(of: configuration.principals)
        return AccessPolicy(configuration: configuration, accounts: accounts, ownUID: 900).roles(of: peer)
    }

    @Test(arguments: [0, 900] as [UInt32])
    func `root and the daemon's own user have every role`(uid: UInt32) {
        #expect(Self.roles(Self.peer(uid: uid)) { _ in } == Set(Role.allCases))
    }

    @Test func `a refusal names who is permitted by this configuration`() {
        var policy = AccessPolicy(configuration: AccessConfiguration(), ownUID: 900)
        #expect(
            policy.others(with: .message) == ["members of the group holdfast", "members of the group holdfast-admin"])
        policy.configuration.observe = [.user("kim"), .group("ops")]
        policy.configuration.control = [.group("ops"), .uid(7)]
        #expect(
            policy.others(with: .observe) == ["the user kim", "members of the group ops", "the user with the id 7"])
        policy.configuration.control = []
        #expect(policy.others(with: .control) == [])
        let refusal = RPCError.notPermitted(role: .control, others: policy.others(with: .observe))
        #expect(
            refusal.data?.hint
                == "root, the user kim and members of the group ops may: try again with sudo, or ask to be added; see "
                + "[access] in holdfast.toml")
    }

    @Test func `a user who is not named has no role`() {
        #expect(Self.roles(Self.peer()) { $0.observe = [.uid(1001), .group("root"), .user("root")] } == [])
    }

    @Test(
        arguments: [
            .anyone, .uid(1000), .group("daemon"), .user("daemon"),
        ] as [Principal])
    func `each kind of principal is recognised`(principal: Principal) throws {
        let (uid, gid) = (
            try #require(try HostAccounts.uid(ofUser: "daemon")), try #require(try HostAccounts.gid(ofGroup: "daemon"))
        )
        let peer = principal == .uid(1000) ? Self.peer() : Self.peer(uid: uid, groups: [1000, gid])
        #expect(Self.roles(peer) { $0.observe = [principal] } == [.observe])
        #expect(Self.roles(peer) { $0.message = [principal] } == [.message])
    }

    private static func rights(_ peer: Peer, publish: [String], subscribe: [String] = []) throws -> TopicRights {
        var topics = SessionConfiguration().topics
        topics.publish = try publish.map { .init(try TopicFilter($0), to: .uid(1000)) }
        topics.subscribe = try subscribe.map { .init(try TopicFilter($0), to: .uid(1000)) }
        return AccessPolicy(configuration: AccessConfiguration(), ownUID: 900).rights(of: peer, by: topics)
    }

    @Test(arguments: [
        ("plant/a", true), ("plant/a/b", false), ("plant", false), ("other", false), ("~/chat", true),
        ("~/other", false), ("~", false), ("", false), ("$share/g/plant/a", false),
    ])
    func `a user publishes where an entry says so`(_ topic: String, _ isPermitted: Bool) throws {
        let entries = ["plant/+", "~/chat", "+/chat"]
        #expect(try Self.rights(Self.peer(), publish: entries).permit(.publish, topic) == isPermitted)
        #expect(try !Self.rights(Self.peer(uid: 1001), publish: entries).permit(.publish, topic), "not named")
        for master in [0, 900] as [UInt32] {
            #expect(try Self.rights(Self.peer(uid: master), publish: entries).permit(.publish, topic))
        }
        #expect(try Self.rights(Self.peer(), publish: []).permit(.publish, topic), "no entries: not narrowed")
        let isOrdinary = !topic.isEmpty && !topic.hasPrefix("$")
        #expect(try Self.rights(Self.peer(), publish: ["#"]).permit(.publish, topic) == isOrdinary)
    }

    @Test(arguments: [
        ("plant/#", true), ("plant/+/a", true), ("plant", true), ("#", false), ("+/a", false), ("~/#", false),
        ("$share/g/plant/a", true), ("$share/g/~/a", false), ("plant/#/a", true),
    ])
    func `a user subscribes to what one entry covers`(_ filter: String, _ isPermitted: Bool) throws {
        let rights = try Self.rights(Self.peer(), publish: ["nothing"], subscribe: ["plant/#", "+"])
        #expect(rights.permit(.subscribe, filter) == isPermitted)
        #expect(!rights.permit(.publish, "plant/a"), "the two lists are apart")
    }

    @Test func `a user with control has every role`() {
        #expect(Self.roles(Self.peer()) { $0.control = [.uid(1000)] } == Set(Role.allCases))
    }

    @Test func `a group or a user that does not exist permits nothing`() {
        #expect(Self.roles(Self.peer()) { $0.observe = [.group("no-such-group"), .user("no-such-user")] } == [])
    }

    @Test func `names are kept until they are looked up again`() {
        var accounts = Accounts(of: [.user("root"), .group("no-such-group")])
        accounts.update(with: Accounts(of: [.group("root")]))
        #expect(accounts.uid(ofUser: "root") == 0)
        #expect(accounts.gid(ofGroup: "root") == 0)
        #expect(accounts.gid(ofGroup: "no-such-group") == nil)
        #expect(accounts.gid(ofGroup: "daemon") == nil, "it was not looked up")
    }

    @Test func `the kernel identifies the process at the other end`() throws {
        var ends: [CInt] = [0, 0]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0, &ends) == 0)
        defer { ends.forEach { close($0) } }
        let peer = try #require(Peer(descriptor: ends[0]))
        #expect(peer.pid == getpid())
        #expect(peer.uid == geteuid())
        #expect(peer.groups.contains(getegid()))
        #expect(Peer(descriptor: -1) == nil)
    }
}
