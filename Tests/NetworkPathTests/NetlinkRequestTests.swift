import Testing
import Vocabulary

@testable import NetworkPath

@Suite struct NetlinkRequestTests {
    @Test func `an IPv4 lookup asks for the real table`() throws {
        let request = NetlinkRequest.route(to: try #require(IPAddress("198.41.0.4")))
        #expect(
            request.encoded(sequence: 7)
                == hex(
                    """
                    24000000 1a00 0100 07000000 00000000    # RTM_GETROUTE, NLM_F_REQUEST
                    02 20 00 00 00 00 00 00 00100000        # AF_INET, /32, RTM_F_LOOKUP_TABLE
                    0800 0100 c6290004                      # RTA_DST
                    """))
    }

    @Test func `an IPv6 lookup has no flag that IPv6 refuses`() throws {
        let request = NetlinkRequest.route(to: try #require(IPAddress("2001:503:ba3e::2:30")))
        #expect(
            request.encoded(sequence: 7)
                == hex(
                    """
                    30000000 1a00 0100 07000000 00000000
                    0a 80 00 00 00 00 00 00 00000000
                    1400 0100 20010503ba3e00000000000000020030
                    """))
    }

    @Test func `a lookup by one interface names it`() throws {
        let request = NetlinkRequest.route(to: try #require(IPAddress("198.41.0.4")), by: 3)
        #expect(
            request.encoded(sequence: 7)
                == hex(
                    """
                    2c000000 1a00 0100 07000000 00000000
                    02 20 00 00 00 00 00 00 00100000
                    0800 0100 c6290004
                    0800 0400 03000000                      # RTA_OIF
                    """))
    }

    @Test func `a lookup for a port names protocol and port`() throws {
        let request = NetlinkRequest.route(to: try #require(IPAddress("198.41.0.4")), port: 1883)
        #expect(
            request.encoded(sequence: 7)
                == hex(
                    """
                    34000000 1a00 0100 07000000 00000000
                    02 20 00 00 00 00 00 00 00100000
                    0800 0100 c6290004
                    0500 1b00 06000000                      # RTA_IP_PROTO: IPPROTO_TCP
                    0600 1d00 075b0000                      # RTA_DPORT, big-endian
                    """))
    }

    @Test func `a link is requested by its index`() {
        #expect(
            NetlinkRequest.link(index: 3).encoded(sequence: 1)
                == hex(
                    """
                    28000000 1200 0100 01000000 00000000    # RTM_GETLINK
                    00 00 0000 03000000 00000000 00000000
                    0800 1d00 08000000                      # IFLA_EXT_MASK: RTEXT_FILTER_SKIP_STATS
                    """))
    }

    @Test(arguments: [
        (
            NetlinkRequest.dumpLinks,
            "28000000 1200 0103 01000000 00000000  00000000 00000000 00000000 00000000  0800 1d00 08000000"
        ),
        (.dumpAddresses, "18000000 1600 0103 01000000 00000000  00000000 00000000"),
        (.dumpRoutes, "1c000000 1a00 0103 01000000 00000000  00000000 00000000 00000000"),
    ])
    func `a dump's header is zero but for the dump flags`(request: NetlinkRequest, bytes: String) {
        #expect(request.encoded(sequence: 1) == hex(bytes))
        #expect(request.isDump)
    }
}
