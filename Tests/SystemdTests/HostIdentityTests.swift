import Glibc
import Testing

@testable import Systemd

@Suite struct `Identity` {
    @Test func `the boot id is the kernel's`() throws {
        let kernel = try #require(line("/proc/sys/kernel/random/boot_id")).filter { $0 != "-" }
        let parts = try #require(BootID.current()?.description.split(separator: "-"))
        #expect(parts.first.map(String.init) == kernel)
        #expect(BootID.current() == BootID.current())
    }

    /// The kernel's id is the host's, also in a container.
    @Test func `the boot of a container is identified by the start of its first process`() throws {
        let stat = "1 (a) b (c)) S 0 1 1 0 -1 4194560 64 0 0 0 1 2 3 4 20 0 1 0 5871 2 3 4 5"
        #expect(BootID.firstProcessStart(in: stat) == "5871")
        #expect(BootID.firstProcessStart(in: "1 (init) S 0 1") == nil)
        #expect(BootID.firstProcessStart(in: "") == nil)
        let kernel = try #require(line("/proc/sys/kernel/random/boot_id")).filter { $0 != "-" }
        #expect(BootID.current()?.description != kernel, "this is a process among others")
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

    @Test func `a device id is read as it is written, and other text is refused`() throws {
        let id = try #require(DeviceID.random())
        #expect(DeviceID(id.description) == id)
        #expect(DeviceID.random() != id)
        for text in [
            "", "abc", id.description.uppercased() + "F", id.description + "0", String(repeating: "g", count: 32),
        ] {
            #expect(DeviceID(text) == nil)
        }
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
