import SessionCore
import Vocabulary

@testable import NetworkPath

/// One datagram of the kernel: its messages, and the tables that people would see if all of a dump were like it.
func readNetlink(_ bytes: [UInt8]) {
    let messages = NetlinkMessage.parse(bytes[...])
    precondition(messages.count <= bytes.count / NetlinkMessage.headerLength, "more messages were read than there are")
    var links: [LinkMessage] = []
    var addresses: [AddressMessage] = []
    var routes: [RouteMessage] = []
    for message in messages {
        switch message.body {
        case .link(let link): links.append(link)
        case .address(let address):
            addresses.append(address)
            precondition(IPAddress("\(address.address)") == address.address, "an address is another one as text")
        case .route(let route): routes.append(route)
        case .error(let number, _), .done(let number, _): precondition(number >= 0, "errno is not negative")
        case .skipped: break
        }
    }
    // The type of a link is asked of sysfs by its name; here its name decides.
    let tables = TableReader.Tables(links: links, addresses: addresses, routes: routes) { link in
        link.kind == nil ? .ethernet : .other
    }
    precondition(tables.interfaces.count == links.count)
}
