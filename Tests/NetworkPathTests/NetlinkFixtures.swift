/// Messages of a kernel 6.18 (x86_64), recorded in a network namespace with veth pairs.
enum Fixture {
    /// Answer to a route lookup for 198.41.0.4.
    static let route4 = hex(
        """
        70000000 1800 0000 07000000 43450000        # 112 bytes, RTM_NEWROUTE, no flags, sequence 7, port
        02 20 00 00 fe 00 00 01 00020000            # AF_INET, /32, main, unicast, RTM_F_CLONED
        0800 0f00 fe000000                          # RTA_TABLE 254
        0800 0100 c6290004                          # RTA_DST 198.41.0.4
        0800 0400 03000000                          # RTA_OIF 3
        0800 0700 0a090001                          # RTA_PREFSRC 10.9.0.1
        0800 0500 0a0900fe                          # RTA_GATEWAY 10.9.0.254
        0800 1900 00000000                          # RTA_UID
        2400 0c00 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000  # RTA_CACHEINFO
        """)

    /// Answer to a route lookup for one of the host's own addresses, 10.9.0.1.
    static let local4 = hex(
        """
        68000000 1800 0000 07000000 43450000
        02 20 00 00 fe 00 00 02 00020080            # AF_INET, /32, local, RTM_F_CLONED and RTCF_LOCAL
        0800 0f00 fe000000 0800 0100 0a090001       # RTA_TABLE 254, RTA_DST 10.9.0.1
        0800 0400 01000000 0800 0700 0a090001       # RTA_OIF 1 (lo), RTA_PREFSRC 10.9.0.1
        0800 1900 00000000
        2400 0c00 01000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
        """)

    /// Answer to a route lookup for 2001:503:ba3e::2:30.
    static let route6 = hex(
        """
        b0000000 1800 0000 07000000 43450000        # 176 bytes, RTM_NEWROUTE
        0a 80 80 00 fe 03 00 01 00000000            # AF_INET6, /128, main, boot, unicast
        0800 0f00 fe000000                          # RTA_TABLE 254
        1400 0100 20010503ba3e00000000000000020030  # RTA_DST
        1400 0200 00000000000000000000000000000000  # RTA_SRC
        1400 0700 20010db8000900000000000000000001  # RTA_PREFSRC 2001:db8:9::1
        0800 0600 85030000                          # RTA_PRIORITY 901
        1400 0500 20010db80009000000000000000000fe  # RTA_GATEWAY 2001:db8:9::fe
        0800 0400 03000000                          # RTA_OIF 3
        2400 0c00 02000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000
        0500 1400 00000000                          # RTA_PREF
        """)

    /// Answer to a lookup in an unreachable route.
    static let unreachable4 = hex(
        """
        38000000 0200 0000 07000000 43450000        # 56 bytes, NLMSG_ERROR
        8fffffff                                    # -113 EHOSTUNREACH
        24000000 1a00 0100 07000000 00000000        # the request: RTM_GETROUTE
        02 20 00 00 00 00 00 00 00100000 0800 0100 0a420001
        """)

    /// Answer to an IPv6 lookup with a flag that only IPv4 has.
    static let badFlag = hex(
        """
        74000000 0200 0002 07000000 43450000        # 116 bytes, NLMSG_ERROR, NLM_F_ACK_TLVS
        eaffffff                                    # -22 EINVAL
        30000000 1a00 0100 07000000 00000000        # the request
        0a 80 00 00 00 00 00 00 00100000 1400 0100 20010db8006600000000000000000001
        2e00 0100 697076363a20496e76616c696420666c61677320666f722067657420726f757465207265717565737400 0000
        """)

    /// Two routes of a dump: the default by 10.9.0.254 and one with two next hops.
    static let defaults4 = hex(
        """
        3c000000 1800 2200 07000000 e0470000        # RTM_NEWROUTE, NLM_F_MULTI | NLM_F_DUMP_FILTERED
        02 00 00 00 fe 03 00 01 00000000            # AF_INET, /0, main, boot, unicast
        0800 0f00 fe000000 0800 0600 32000000       # RTA_TABLE 254, RTA_PRIORITY 50
        0800 0500 0a0900fe 0800 0400 03000000       # RTA_GATEWAY 10.9.0.254, RTA_OIF 3
        50000000 1800 2200 07000000 e0470000
        02 00 00 00 fe 03 00 01 00000000
        0800 0f00 fe000000 0800 0600 84030000       # RTA_PRIORITY 900
        2400 0900                                   # RTA_MULTIPATH
          1000 00 00 03000000 0800 0500 0a0900fe    #   by 10.9.0.254
          1000 00 00 03000000 0800 0500 0a0900fd    #   by 10.9.0.253
        """)

    /// The end of a dump.
    static let done = hex("14000000 0300 0200 07000000 e0470000 00000000")

    /// An address of a dump.
    static let address4 = hex(
        """
        4c000000 1400 0200 07000000 e0470000        # RTM_NEWADDR
        02 18 80 00 03000000                        # AF_INET, /24, permanent, interface 3
        0800 0100 0a090001 0800 0200 0a090001       # IFA_ADDRESS, IFA_LOCAL 10.9.0.1
        0800 0300 75703000                          # IFA_LABEL "up0"
        0800 0800 80000000                          # IFA_FLAGS
        1400 0600 ffffffff ffffffff 60d90200 60d90200  # IFA_CACHEINFO
        """)

    /// A veth with carrier; the attributes between were taken out, and the length corrected.
    static let linkUp = hex(
        """
        44000000 1000 0000 07000000 43450000        # 68 bytes, RTM_NEWLINK
        00 00 0100 03000000 43100100 00000000       # ARPHRD_ETHER, 3, UP BROADCAST RUNNING MULTICAST LOWER_UP
        0800 0300 75703000                          # IFLA_IFNAME "up0"
        0500 1000 06000000                          # IFLA_OPERSTATE up
        1000 1200 0900 0100 7665746800000000        # IFLA_LINKINFO: IFLA_INFO_KIND "veth"
        0400 7f00                                   # an attribute that nobody knows
        """)

    /// The same after its peer was set down.
    static let linkWithoutCarrier = hex(
        """
        40000000 1000 0000 07000000 e0470000
        00 00 0100 03000000 03100000 00000000       # UP BROADCAST MULTICAST
        0800 0300 75703000
        0500 1000 03000000                          # IFLA_OPERSTATE lower layer down
        1000 1200 0900 0100 7665746800000000
        """)
}
