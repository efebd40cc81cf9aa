#include "text/tokenizer.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "text/nfc.h"
#include "text/utf8.h"

namespace fourfold::text {

namespace {

// Offsets inside a piece are 32-bit, and nobody's prompt is longer.
constexpr std::size_t kTextBytesMax = std::size_t{1} << 30;

PieceCache& cache_of(std::uint64_t serial) {
  struct Owned {
    std::uint64_t serial = 0;
    PieceCache cache;
  };
  thread_local Owned owned;
  if (owned.serial != serial) {
    owned.cache = PieceCache();
    owned.serial = serial;
  }
  return owned.cache;
}

}  // namespace

Tokenizer::Tokenizer() {
  static std::atomic<std::uint64_t> last_serial{0};
  serial_ = ++last_serial;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kTextBytesMax) {
    fail(Code::invalid_request, "text of {} bytes cannot be tokenized; the limit is {}",
         with_commas(text.size()), with_commas(kTextBytesMax));
  }
  std::vector<TokenId> out;
  out.reserve(text.size() / 3);
  if (options.add_special_tokens) out = before_;
  if (is_valid_utf8(text)) {
    encode_span(text, options, out);
  } else {
    encode_span(repaired(text), options, out);
  }
  if (options.add_special_tokens) out.insert(out.end(), after_.begin(), after_.end());
  return out;
}

void Tokenizer::encode_span(std::string_view text, const EncodeOptions& options,
                            std::vector<TokenId>& out) const {
  const auto id_of = [this](const TextSpan& span) {
    return added_tokens_[static_cast<std::size_t>(span.token_index)].id;
  };
  for (const TextSpan& span :
       split_at_added_tokens(text, raw_finder_, added_tokens_, options.special_as_text)) {
    if (span.token_index >= 0) {
      out.push_back(id_of(span));
      continue;
    }
    std::string_view normal = text.substr(span.begin, span.end - span.begin);
    std::string rebuilt;
    if (nfc_ && !is_surely_nfc(normal)) normal = rebuilt = to_nfc(normal);
    for (const TextSpan& inner :
         split_at_added_tokens(normal, normalized_finder_, added_tokens_, options.special_as_text)) {
      if (inner.token_index >= 0) {
        out.push_back(id_of(inner));
      } else {
        encode_pieces(normal.substr(inner.begin, inner.end - inner.begin), out);
      }
    }
  }
}

void Tokenizer::encode_pieces(std::string_view text, std::vector<TokenId>& out) const {
  std::vector<std::size_t> ends;
  pre_tokenizer_.split(text, ends);
  PieceCache& cache = cache_of(serial_);
  std::size_t start = 0;
  for (const std::size_t end : ends) {
    encode_piece(bpe_, text.substr(start, end - start), cache, out);
    start = end;
  }
}

std::string Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!(options.skip_special && is_special(id))) bytes += token_bytes(id);
  }
  return is_valid_utf8(bytes) ? bytes : repaired(bytes);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return id >= 0 && id < id_limit() ? std::string_view(tokens_[static_cast<std::size_t>(id)].bytes) : "";
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && id < id_limit() && tokens_[static_cast<std::size_t>(id)].special;
}

std::optional<TokenId> Tokenizer::added_token(std::string_view content) const {
  const auto found = std::ranges::find(added_tokens_, content, &AddedToken::content);
  return found == added_tokens_.end() ? std::nullopt : std::optional(found->id);
}

}  // namespace fourfold::text
