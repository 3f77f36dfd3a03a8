import Glibc
import Support

/// An authority and a server's certificate, made for one test.
struct Certificates {
    let authority: String
    let certificate: String
    let key: String

    /// - Parameters:
    ///   - days: for how long the server's certificate is valid from now on; negative if it has expired.
    ///   - clock: how far the clock of its issuer is ahead, as libfaketime writes it.
    init(_ lab: Lab, name: String, days: Int = 2, clock: String? = nil) async throws {
        let folder = lab.directory
        authority = "\(folder)/ca.pem"
        certificate = "\(folder)/server.pem"
        key = "\(folder)/server.key"
        try lab.write("extensions", "subjectAltName=DNS:\(name)\nbasicConstraints=critical,CA:FALSE\n")
        try await openssl(
            lab,
            [
                "req", "-x509", "-days", "2", "-subj", "/CN=Lab authority", "-keyout", "\(folder)/ca.key", "-out",
                authority,
            ] + Self.newKey)
        try await sign(
            lab, name, certificate, key, days: days, extensions: ["-extfile", "\(folder)/extensions"], clock: clock)
    }

    /// Issues another certificate for the server, in the same place.
    func renew(name: String, in lab: Lab) async throws {
        try await sign(lab, name, certificate, key, extensions: ["-extfile", "\(lab.directory)/extensions"])
    }

    /// Issues a client's certificate; each file appears as a whole.
    func issue(_ name: String, to file: String, in lab: Lab) async throws {
        try await sign(lab, name, "\(file).pem.new", "\(file).key.new", extensions: [])
        for kind in ["key", "pem"] { rename("\(file).\(kind).new", "\(file).\(kind)") }
    }

    private static let newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]

    private func sign(
        _ lab: Lab, _ name: String, _ certificate: String, _ key: String, days: Int = 2, extensions: [String],
        clock: String? = nil
    ) async throws {
        let (folder, request) = (lab.directory, "\(certificate).csr")
        try await openssl(lab, ["req", "-new", "-subj", "/CN=\(name)", "-keyout", key, "-out", request] + Self.newKey)
        try await openssl(
            lab,
            ["x509", "-req", "-days", "\(days)", "-in", request, "-CA", authority, "-CAkey", "\(folder)/ca.key"]
                + ["-CAcreateserial", "-out", certificate] + extensions, clock: clock)
    }

    private func openssl(_ lab: Lab, _ words: [String], clock: String? = nil) async throws {
        let fake = clock.map { ["env", "LD_PRELOAD=\(LabFakeClock.library ?? "")", "FAKETIME=\($0)"] } ?? []
        let result = try await lab.finish(fake + ["openssl"] + words, in: nil)
        guard result.ending == .exited(0) else { throw Lab.Failure("openssl: \(result.errors)") }
    }
}
