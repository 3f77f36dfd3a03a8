import Foundation
import Support
import Systemd
import Testing

@testable import Agent

/// The device id of a host without a machine id, such as most containers.
struct KeptDeviceIDTests {
    @Test func `a kept device id is random and stable, and is made again when damaged`() throws {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let folder = directory.path
        let first = try #require(DeviceID.kept(in: folder))
        #expect(DeviceID.kept(in: folder) == first)
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder) == ["device"])
        let mode = try FileManager.default.attributesOfItem(atPath: "\(folder)/device")[.posixPermissions] as? Int
        #expect(mode == 0o600)
        for damage in ["", "abc\n", "\(first)0\n"] {
            try damage.write(toFile: "\(folder)/device", atomically: false, encoding: .utf8)
            let next = try #require(DeviceID.kept(in: folder))
            #expect(next != first)
            #expect(DeviceID.kept(in: folder) == next)
        }
        // There is a device id even where nothing can be written.
        #expect(DeviceID.kept(in: "\(folder)/nowhere") != nil)
    }
}
