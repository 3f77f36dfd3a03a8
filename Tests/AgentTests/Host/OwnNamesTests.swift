import Testing
import Vocabulary

@testable import Agent

/// Names of the host itself, which need no network.
struct OwnNamesTests {
    @Test(arguments: [
        ("localhost", ["127.0.0.1", "::1"]), ("broker.localhost", ["127.0.0.1", "::1"]), ("localhosts", []),
    ])
    func `localhost is the host itself`(_ name: String, _ addresses: [String]) {
        #expect(OwnNames.standard(name).map(\.description) == addresses)
    }

    @Test(arguments: [
        ("robot", ["127.0.1.1", "::1"]), ("Robot.Example", ["127.0.1.1"]), ("camera", []), ("both", []),
        ("commented", []), ("nobody", []), ("127.0.1.1", []),
    ])
    func `a name that the hosts file gives only loopback addresses is the host itself`(
        _ name: String, _ addresses: [String]
    ) {
        let text = """
            # 127.0.0.1 commented
            127.0.1.1\trobot.example robot # commented
            ::1 robot
            192.0.2.7 camera both
            127.0.0.1 both
            nonsense nobody

            """
        #expect(OwnNames.addresses(of: name, in: text).map(\.description) == addresses)
    }

    @Test func `a hosts file that is not there has no names`() {
        #expect(OwnNames.inHostsFile("robot", path: "/nowhere/hosts").isEmpty)
    }
}
