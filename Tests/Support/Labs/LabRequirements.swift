import Foundation
import Glibc

/// What a host must have for a lab.
public enum LabRequirements {
    /// What is missing here; empty if a lab can be made.
    public static let missing: [String] = {
        guard geteuid() == 0 else { return ["root is needed for network namespaces"] }
        let tools = [
            "ip", "nft", "sysctl", "setpriv", "stdbuf", "mosquitto", "mosquitto_sub", "mosquitto_pub",
            "mosquitto_passwd", "openssl", "tcpdump", "tinyproxy", "microsocks", "tmux", "prometheus", "promtool",
            "python3", "go",
        ]
        let directories = (getenv("PATH").map { String(cString: $0) } ?? "").split(separator: ":")
        var missing = tools.filter { tool in !directories.contains { access("\($0)/\(tool)", X_OK) == 0 } }
            .map { "there is no \($0)" }
        if LabFakeClock.library == nil { missing.append("there is no libfaketime") }
        if missing.isEmpty, let reason = namespaceFailure() { missing.append(reason) }
        return missing
    }()

    /// `HOLDFAST_REQUIRE_ALL=1`: a test that cannot run fails instead of being skipped.
    public static let isAllRequired = getenv("HOLDFAST_REQUIRE_ALL").map { String(cString: $0) } == "1"

    /// Makes a namespace and removes it, which many containers may not do.
    private static func namespaceFailure() -> String? {
        let name = "\(Namespace.prefix)\(getpid())probe"
        let status = system("exec 2>/dev/null; ip netns add \(name) && ip netns del \(name)")
        return status == 0 ? nil : "network namespaces cannot be made"
    }
}
