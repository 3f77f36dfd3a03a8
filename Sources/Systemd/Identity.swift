internal import CSystemd
internal import Glibc

/// Identifies one boot of the host, or of the container. It changes with each boot, and stays the same through suspend
/// and restarts of the daemon.
public struct BootID: Hashable, Sendable, CustomStringConvertible {
    /// 32 lower-case hexadecimal digits, then the start time of the first process, if that is known.
    public let description: String

    /// Reads the id from the kernel, sd_id128_get_boot(3). In a container that is the host's id; only its first
    /// process, and when that was started, is the container's own.
    ///
    /// - Returns: `nil` when `/proc` does not have it, as in some containers.
    public static func current() -> BootID? {
        var id = sd_id128_t()
        guard sd_id128_get_boot(&id) >= 0 else { return nil }
        guard let start = startOfFirstProcess() else { return BootID(description: text(id)) }
        return BootID(description: "\(text(id))-\(start)")
    }

    /// The start time of the first process in clock ticks since the host was booted: proc_pid_stat(5), the 22nd field.
    /// If other users' processes are hidden, as by ProtectProc=, the birth time of `/run/systemd/system` instead.
    private static func startOfFirstProcess() -> String? {
        if let file = fopen("/proc/1/stat", "re") {
            defer { fclose(file) }
            var bytes = [UInt8](repeating: 0, count: 1024)
            let count = fread(&bytes, 1, bytes.count, file)
            if let start = firstProcessStart(in: String(decoding: bytes[..<count], as: UTF8.self)) { return start }
        }
        let birth = holdfast_birth_time("/run/systemd/system")
        return birth > 0 ? "\(birth)" : nil
    }

    /// Reads the 22nd field. The second, the process's name in parentheses, may contain spaces and parentheses.
    static func firstProcessStart(in stat: String) -> String? {
        guard let end = stat.lastIndex(of: ")") else { return nil }
        let fields = stat[end...].split(separator: " ")
        // The third field of the file is the second one here.
        guard fields.count > 20, fields[20].allSatisfy(\.isNumber) else { return nil }
        return String(fields[20])
    }
}

/// A stable id of this installation for servers to see.
///
/// It is derived from the machine id with a keyed hash, so that the machine id itself, which machine-id(5) asks to keep
/// confidential, never leaves the host.
public struct DeviceID: Hashable, Sendable, CustomStringConvertible {
    /// 32 lower-case hexadecimal digits.
    public let description: String

    /// The id of Holdfast as an application. Changing it would change the device id of every host.
    private static let application = sd_id128_t(
        bytes: (0x7A, 0x1C, 0x0E, 0x52, 0x9B, 0x0D, 0x4F, 0x6E, 0xA3, 0x65, 0x1F, 0xD0, 0x27, 0xC8, 0x44, 0xB9))

    /// Derives the id: sd_id128_get_machine_app_specific(3).
    ///
    /// - Returns: `nil` when `/etc/machine-id` is missing, empty or not initialized. The caller then makes a random id
    ///   and keeps it with its state.
    public static func derived() -> DeviceID? {
        var id = sd_id128_t()
        guard sd_id128_get_machine_app_specific(application, &id) >= 0 else { return nil }
        return DeviceID(description: text(id))
    }

    /// Makes a random id; `nil` when the kernel gives no random bytes.
    public static func random() -> DeviceID? {
        var id = sd_id128_t()
        return sd_id128_randomize(&id) >= 0 ? DeviceID(description: text(id)) : nil
    }

    /// Reads a text that ``description`` returned; `nil` for any other text.
    public init?(_ text: String) {
        guard text.utf8.count == 32, text.allSatisfy({ $0.isASCII && $0.isHexDigit && !$0.isUppercase }) else {
            return nil
        }
        description = text
    }

    private init(description: String) {
        self.description = description
    }
}

private func text(_ id: sd_id128_t) -> String {
    withUnsafeBytes(of: id.bytes) { bytes in
        bytes.reduce(into: "") { result, byte in
            let digits = String(byte, radix: 16)
            result += digits.count == 1 ? "0" + digits : digits
        }
    }
}
