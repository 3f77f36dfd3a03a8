import Glibc
import Systemd
import Vocabulary

extension DeviceID {
    /// Returns the id derived from the machine id. If there is no machine id, as in most containers, returns a random
    /// one that is kept in the daemon's directory, so that two containers are not one device.
    static func ofThisHost(keptIn directory: String) -> DeviceID? {
        derived() ?? kept(in: directory)
    }

    /// - Returns: the kept id, or a new one. A new one is returned even if it could not be written; it is then used
    ///   until the daemon ends.
    static func kept(in directory: String) -> DeviceID? {
        let path = "\(directory)/device"
        if let bytes = try? fileContents(path, atMost: 64),
            let id = DeviceID(String(decoding: bytes.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self))
        {
            return id
        }
        guard let id = random() else { return nil }
        // Written completely or not at all, even if power is lost.
        let draft = "\(path).new"
        let descriptor = open(draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { return id }
        let isWritten = writeAll(Array("\(id)\n".utf8), to: descriptor) == nil && fsync(descriptor) == 0
        close(descriptor)
        if !isWritten || rename(draft, path) != 0 { unlink(draft) }
        return id
    }
}
