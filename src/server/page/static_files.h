// The files of the chat page and the status page, which are part of the program. They need no key: they hold
// nothing of the model, and ask for the key themselves.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace fourfold::server {

struct StaticFile {
  std::string_view path;  // as in the request's target, without a query
  std::string_view content_type;
  std::string_view body;
  std::string_view etag;  // with its quotes; the same bytes have the same one in every build
};

// Sent with each of these files, beside Content-Type and ETag. Scripts and styles come from this server only,
// none stand in the page, text never becomes markup (browsers that know trusted types refuse innerHTML and
// its like), and no page of others may frame it.
inline constexpr std::string_view kPageSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";
// A browser asks each time, and is told 304 while If-None-Match has the ETag: a newer program is never shown
// an older page.
inline constexpr std::string_view kPageCacheControl = "no-cache";

std::optional<StaticFile> static_file(std::string_view path);
std::span<const StaticFile> static_files();

}  // namespace fourfold::server
