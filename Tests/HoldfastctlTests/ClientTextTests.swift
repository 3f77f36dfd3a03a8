import ControlAPI
import Glibc
import Testing

@testable import holdfastctl

struct ClientTextTests {
    private static let times = TimeText(now: Timestamp(rawValue: 1_795_165_976_120), isAbsolute: false)
    private static let names = HostNames(
        ownPID: 7, program: { $0 == 9 ? "python3" : $0 == 7 ? "holdfastctl" : nil },
        user: { $0 == 0 ? "root" : nil })

    private static func client(
        _ pid: Int32, _ uid: UInt32 = 1000, _ name: String? = nil, roles: [Role] = [.observe, .message],
        inFlight: Int = 0, watches: Int = 0, sessions: [ConnectedClient.Session] = [], unread: Int = 0,
        dropped: Int = 0
    ) -> ConnectedClient {
        ConnectedClient(
            pid: pid, uid: uid, client: name, roles: roles, since: Timestamp(rawValue: 1_795_165_964_120),
            calls: .init(answered: 3, inFlight: inFlight), watches: watches, sessions: sessions, unread: unread,
            dropped: dropped)
    }

    private static func lines(_ clients: [ConnectedClient], _ names: HostNames = names) throws -> [String] {
        let answer = ClientText.named(JSONText.value(DaemonClientsMethod.Result(clients: clients)), by: names)
        return try ClientText.lines(for: answer, times: times)
    }

    @Test func `the programs are a table, with what they receive`() throws {
        let sessions: [ConnectedClient.Session] = [
            .init(session: "gw-2", subscriptions: 1, consumers: ["a", "b"]),
            .init(session: "gw-10", subscriptions: 0, consumers: ["c"]),
        ]
        let lines = try Self.lines([
            Self.client(9, 1000, "sensor\u{1B} 2", watches: 2, sessions: sessions, unread: 2048, dropped: 4),
            Self.client(8, 1000, roles: []),
            Self.client(7, 0, "holdfastctl 0.1.0", roles: Role.allCases, inFlight: 1),
        ])
        #expect(
            lines == [
                "3 programs are connected:", "",
                "PROGRAM              PID  USER  ROLE              SINCE     CALLS  UNREAD  DROPPED  RECEIVES",
                "python3 (sensor\u{FFFD} 2)  9    1000  observe, message  12 s ago  3      2 KiB   4        "
                    + "2 watches; gw-2: 1 subscription, consumers a, b; gw-10: consumer c",
                "-                    8    1000  -                 12 s ago  3      -       -        -",
                "holdfastctl          7    root  control           12 s ago  3+1    -       -        -",
            ])
        #expect(try Self.lines([Self.client(7)]).first == "1 program is connected:")
    }

    @Test func `a process of another host is not looked up here`() throws {
        var names = Self.names
        names.ownPID = 11
        let lines = try Self.lines([Self.client(9, 1000, "sensor 2"), Self.client(0)], names)
        #expect(lines[3].hasPrefix("sensor 2  9    1000"))
        #expect(lines[4].hasPrefix("-         -    1000"))
    }

    @Test func `programs get the names as members`() throws {
        let answer = ClientText.named(
            JSONText.value(DaemonClientsMethod.Result(clients: [Self.client(7, 0), Self.client(8)])), by: Self.names)
        guard case .array(let rows)? = answer["clients"] else { throw CommandFailure(.failed, "\(answer)") }
        #expect(
            try FieldList(argument: "pid,program,user,uid,calls.answered")?.lines(rows) == [
                "7\tholdfastctl\troot\t0\t3", "8\t\t\t1000\t3",
            ])
    }

    @Test func `this host knows this process`() {
        #expect(HostNames.thisHost.program(getpid())?.isEmpty == false)
        #expect(HostNames.thisHost.program(.max) == nil)
        #expect(HostNames.thisHost.user(0) == "root")
        #expect(HostNames.thisHost.user(.max - 1) == nil)
    }
}
