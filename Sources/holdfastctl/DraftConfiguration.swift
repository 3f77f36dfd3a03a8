import ControlAPI
import Glibc

/// The configuration as it would be with another text of one file: a folder with this file, and with links to the others.
struct DraftConfiguration {
    /// The file in the folder.
    let path: String
    private let file: String
    private let folder: String
    private let place: ConfigCommand.Place

    /// Creates the folder without the file.
    ///
    /// - Parameter file: the path below the configuration directory.
    /// - Returns: `nil` if there is no folder for temporary files.
    init?(of file: String, in place: ConfigCommand.Place) {
        var template = Array("\(Folder.temporary)/holdfastctl-XXXXXX".utf8CString)
        guard let made = mkdtemp(&template) else { return nil }
        folder = String(cString: made)
        (self.file, self.place, path) = (file, place, "\(folder)/\(file)")
        mkdir("\(folder)/sessions.d", 0o700)
        let sessions = (Folder.names(in: "\(place.configDirectory)/sessions.d") ?? []).map { "sessions.d/\($0)" }
        for other in sessions + ["holdfast.toml"] where other != file {
            symlink("\(place.configDirectory)/\(other)", "\(folder)/\(other)")
        }
    }

    func remove() {
        // An editor may have left files of its own.
        _ = ExternalProgram.run(["rm", "-rf", "--", folder])
    }

    /// Returns the errors of the file, including conflicts with the other files.
    func errors() throws(CommandFailure) -> [ConfigurationProblem] {
        var here = place
        here.configDirectory = folder
        let configuration = try ConfigCommand.effective(here)
        let isService = place.configDirectory == ConfigCommand.Place.standard
        let hidden = isService ? ConfigCommand.hidden(ServiceUnit.hiddenFolders, in: configuration.files) : []
        return (configuration.errors + hidden).filter { $0.file == path }.map { problem in
            var problem = problem
            problem.file = "\(place.configDirectory)/\(file)"
            return problem
        }
    }
}
