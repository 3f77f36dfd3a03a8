internal import CSystemd

/// Which boot of the host this is. It differs after each boot and stays through suspend and daemon restarts.
public struct BootID: Hashable, Sendable, CustomStringConvertible {
    /// 32 lower-case hexadecimal digits.
    public let description: String

    /// Reads the id from the kernel: sd_id128_get_boot(3).
    ///
    /// - Returns: `nil` when `/proc` does not have it, as in some containers.
    public static func current() -> BootID? {
        var id = sd_id128_t()
        guard sd_id128_get_boot(&id) >= 0 else { return nil }
        return BootID(description: text(id))
    }
}

/// A stable id of this installation for servers to see.
///
/// It is derived from the machine id with a keyed hash, so that the machine id itself, which machine-id(5) asks to keep
/// confidential, never leaves the host.
public struct DeviceID: Hashable, Sendable, CustomStringConvertible {
    /// 32 lower-case hexadecimal digits.
    public let description: String

    /// The id of Holdfast as an application; another one would give every host another device id.
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
}

private func text(_ id: sd_id128_t) -> String {
    withUnsafeBytes(of: id.bytes) { bytes in
        bytes.reduce(into: "") { result, byte in
            let digits = String(byte, radix: 16)
            result += digits.count == 1 ? "0" + digits : digits
        }
    }
}
