import ControlAPI
import SessionCore

// Translates the machines' values into those of the control socket.

extension ControlAPI.SessionStatus.Reason {
    init(_ reason: Reason, _ remedies: Remedies) {
        self.init(
            code: reason.code.rawValue, group: reason.code.group.rawValue, terminal: reason.isTerminal,
            serverCode: reason.serverCode.map { Int($0) }, message: reason.message,
            hint: remedies.hint(for: reason),
            lastFailure: reason.lastFailure.map {
                .init(code: $0.code.rawValue, group: $0.code.group.rawValue, message: $0.message)
            })
    }
}

extension ControlAPI.SessionStatus.Path {
    init(_ path: Path) {
        self.init(
            interface: path.interface, type: path.type.rawValue, source: path.source, gateway: path.gateway)
    }
}
