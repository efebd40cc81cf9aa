#include "checkpoint/write/output_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "checkpoint/write/output_file.h"

namespace fourfold::checkpoint {

OutputFolder::OutputFolder(const std::filesystem::path& wanted) {
  if (wanted.empty()) fail(Code::invalid_request, "the folder to write has no name");
  // Without the slash at the end that a shell's completion leaves.
  wanted_ = (wanted.has_filename() ? wanted : wanted.parent_path()).lexically_normal();
  std::error_code problem;
  const auto kind = std::filesystem::symlink_status(wanted_, problem).type();
  if (kind == std::filesystem::file_type::none)
    fail(Code::io, "{} cannot be made: {}", wanted_.string(), problem.message());
  if (kind != std::filesystem::file_type::not_found)
    fail_with_hint(Code::invalid_request, "give a name that is free, or remove it first", "{} exists already",
                   wanted_.string());
  partial_ = wanted_;
  partial_ += fourfold::format(".partial-{}", static_cast<long>(::getpid()));
  if (!std::filesystem::create_directory(partial_, problem))
    fail(Code::io, "{} cannot be made: {}", wanted_.string(),
         problem ? problem.message() : std::string("it exists already"));
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!published_) std::filesystem::remove_all(partial_, ignored);
}

void OutputFolder::write(std::string_view name, std::string_view text) const {
  OutputFile file(partial_ / name);
  file.write(0, {reinterpret_cast<const std::byte*>(text.data()), text.size()}, name);
  file.close();
}

void OutputFolder::copy(const std::filesystem::path& source) const {
  const std::filesystem::path target = partial_ / source.filename();
  std::error_code problem;
  std::filesystem::copy_file(source, target, problem);
  if (problem)
    fail(Code::io, "{} cannot be copied to {}: {}", source.string(), target.string(), problem.message());
}

void OutputFolder::publish() {
  std::error_code problem;
  // rename() would silently replace an empty folder that has appeared in the meantime.
  if (std::filesystem::exists(std::filesystem::symlink_status(wanted_, problem)))
    fail(Code::io, "{} has appeared while its content was being made", wanted_.string());
  std::filesystem::rename(partial_, wanted_, problem);
  if (problem)
    fail(Code::io, "{} cannot be renamed to {}: {}", partial_.string(), wanted_.string(), problem.message());
  published_ = true;
}

}  // namespace fourfold::checkpoint
