import Foundation

/// The Debian package, made from the programs of the tests or of the release, and the same again as the next version.
public enum DebianPackage {
    /// Why a package cannot be made here; `nil` when one can.
    public static var obstacle: String? {
        let tools = ["dpkg-buildpackage", "dh", "fakeroot", "apt-ftparchive", "gpg", "lintian"]
        let missing = tools.filter { access("/usr/bin/\($0)", X_OK) != 0 }
        return missing.isEmpty
            ? nil : "there is no \(missing.joined(separator: ", ")): scripts/setup package installs it"
    }

    private static let repository = repositoryRoot.path

    /// Makes a folder with `this.deb` and `next.deb`, which has a higher version.
    public static func make(programs: String, in folder: String) async throws {
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        func run(_ words: String...) async throws {
            try await LabProcess.run(
                words, files: "\(folder)/command-\(UUID().uuidString.prefix(8))", within: .seconds(1200))
        }
        // The release's package, if `make deb` has built it; it is not built here.
        let built = ProcessInfo.processInfo.environment["HOLDFAST_PACKAGE"]
        if built == nil { try await run("\(repository)/scripts/package", "--quick", programs, "\(folder)/built") }
        let files = try FileManager.default.contentsOfDirectory(atPath: built ?? "\(folder)/built")
        guard let file = files.first(where: { $0.hasPrefix("holdfast_") && $0.hasSuffix(".deb") }) else {
            throw Lab.Failure("there is no package in \(built ?? folder): \(files)")
        }
        let package = "\(built ?? "\(folder)/built")/\(file)"
        try await run("cp", package, "\(folder)/this.deb")
        try await run("dpkg-deb", "--raw-extract", package, "\(folder)/next")
        try await run("sed", "-i", "s/^Version: .*/&+next/", "\(folder)/next/DEBIAN/control")
        try await run("dpkg-deb", "-Znone", "--root-owner-group", "--build", "\(folder)/next", "\(folder)/next.deb")
    }

    /// Makes an apt repository, signed with a key that is made for it.
    public static func makeRepository(of packages: String, in folder: String) async throws {
        let home = folder + "-key"
        try FileManager.default.createDirectory(
            atPath: home, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        let environment = ["env", "GNUPGHOME=\(home)"]
        try await LabProcess.run(
            environment + [
                "gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", "tests@holdfast.invalid",
                "ed25519", "sign", "never",
            ], files: "\(home)/gpg")
        try await LabProcess.run(
            environment + ["\(repository)/scripts/apt-repository", packages, folder], files: "\(home)/repository",
            within: .seconds(1200))
        // Otherwise the agent would keep running.
        try await LabProcess.run(environment + ["gpgconf", "--kill", "all"], files: "\(home)/agent")
    }

    /// Returns what lintian complains about; empty if nothing. Known complaints about programs that are not the
    /// release's are omitted.
    public static func complaints(about package: String) async throws -> String {
        try await LabProcess.run(
            [
                "lintian", "--fail-on", "none", "--allow-root", "--suppress-tags",
                "custom-library-search-path,binary-has-unneeded-section", package,
            ], files: "\(package)-lintian", within: .seconds(1200))
    }
}
