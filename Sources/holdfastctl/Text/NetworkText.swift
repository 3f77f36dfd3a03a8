import ControlAPI

/// `network` in words.
enum NetworkText {
    /// - Parameter width: that of the terminal; `nil` if the tables are not cut.
    static func lines(
        for status: NetworkStatus, times: TimeText, width: Int? = nil, isColoured: Bool = false
    ) -> [String] {
        var lines = Columns.wrapped(overview(status), to: width, indent: 2) + [""]
        lines += Columns.table(
            ["INTERFACE", "TYPE", "STATE", "ADDRESSES", "DEFAULT ROUTE"],
            status.interfaces.map { interface in
                [
                    interface.name, interface.type, interface.up ? (interface.carrier ? "up" : "no carrier") : "down",
                    list(interface.addresses), list(interface.defaultRoutes),
                ]
            }, width: width,
            marks: isColoured
                ? status.interfaces.map { $0.up ? $0.carrier ? Mark.good : .trouble : .off }.map(\.rawValue) : nil)
        if !status.paths.isEmpty {
            lines += [""]
            lines += Columns.table(
                ["SESSION", "ENDPOINT", "VIA", "SOURCE", "GATEWAY"],
                status.paths.map { path in
                    [
                        path.session, path.endpoint, path.interface ?? missing(path), path.source ?? "-",
                        path.gateway ?? "-",
                    ]
                }, width: width,
                marks: isColoured ? status.paths.map { $0.interface == nil ? Mark.bad : .good }.map(\.rawValue) : nil)
        }
        if !status.changes.isEmpty {
            lines += ["", "Last changes:"]
            lines += Columns.details(
                status.changes.map { change in
                    let session = change.session.map { "\($0): " } ?? ""
                    return (times.moment(change.time), "\(session)\(change.class), \(way(change))")
                })
        }
        return lines
    }

    /// From where to where a path has moved.
    private static func way(_ change: NetworkStatus.Change) -> String {
        guard let from = change.from, let to = change.to, from.interface == to.interface else {
            return "\(change.from?.interface ?? "none") → \(change.to?.interface ?? "none")"
        }
        let moves = [("from", from.source, to.source), ("via", from.gateway ?? "none", to.gateway ?? "none")]
        let parts = moves.filter { $0.1 != $0.2 }.map { "\($0.0) \($0.1) → \($0.2)" }
        if !parts.isEmpty { return "\(to.interface) \(parts.joined(separator: ", "))" }
        // What listens on this host may be a proxy.
        return to.type == "loopback" ? "\(to.interface), and the routes to other hosts have changed" : to.interface
    }

    private static func missing(_ path: NetworkStatus.EndpointPath) -> String {
        path.excluded.map { "no path (\($0.interface) not allowed)" } ?? "no path"
    }

    private static func overview(_ status: NetworkStatus) -> String {
        let missing = status.paths.filter { $0.interface == nil }
        if status.paths.isEmpty { return "No session needs the network." }
        guard let first = missing.first else {
            let interfaces = Set(status.paths.compactMap(\.interface)).sorted().joined(separator: ", ")
            return printable("There is a path to every endpoint, via \(interfaces).")
        }
        return missing.count == status.paths.count
            ? "There is no path to any endpoint."
            : printable("There is no path to \(missing.count) of \(status.paths.count) endpoints (\(first.endpoint)).")
    }

    private static func list(_ names: [String]) -> String {
        names.isEmpty ? "-" : names.joined(separator: ", ")
    }
}
