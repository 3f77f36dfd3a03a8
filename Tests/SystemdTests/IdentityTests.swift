import Glibc
import Testing

@testable import Systemd

@Suite struct `Identity` {
    @Test func `the boot id is the kernel's`() throws {
        let kernel = try #require(line("/proc/sys/kernel/random/boot_id")).filter { $0 != "-" }
        #expect(BootID.current()?.description == kernel)
        #expect(BootID.current() == BootID.current())
    }

    @Test func `the device id is stable and not the machine id`() throws {
        let machine = line("/etc/machine-id") ?? ""
        guard machine.utf8.count == 32 else {
            #expect(DeviceID.derived() == nil, "there is no machine id to derive it from")
            return
        }
        let device = try #require(DeviceID.derived())
        #expect(device.description.utf8.count == 32)
        #expect(device.description.allSatisfy { "0123456789abcdef".contains($0) })
        #expect(device.description != machine)
        #expect(DeviceID.derived() == device)
    }

    /// The first line of a small file.
    private func line(_ path: String) -> String? {
        guard let file = fopen(path, "r") else { return nil }
        defer { fclose(file) }
        var buffer = [CChar](repeating: 0, count: 128)
        guard fgets(&buffer, Int32(buffer.count), file) != nil else { return nil }
        return String(decoding: buffer.prefix { $0 != 0 && $0 != 10 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
