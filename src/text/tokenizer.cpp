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
        const std::string_view piece = normal.substr(inner.begin, inner.end - inner.begin);
        encode_pieces(options.mark.empty() ? piece : without(piece, options.mark), out);
      }
    }
  }
}

// Where special tokens of two characters or more begin, also inside of each other; ascending.
std::vector<std::size_t> Tokenizer::special_places(std::string_view text) const {
  std::vector<std::size_t> out;
  for (const AddedTokenFinder* finder : {&raw_finder_, &normalized_finder_})
    for (std::size_t at = 0; !finder->empty();) {
      const auto match = finder->find(text, at);
      if (match.token_index < 0) break;
      at = match.begin + 1;
      const auto first = static_cast<std::size_t>(read_code_point(text.data() + match.begin).bytes);
      if (added_tokens_[static_cast<std::size_t>(match.token_index)].special &&
          match.end - match.begin > first)
        out.push_back(match.begin);
    }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::string Tokenizer::with_marks(std::string_view text, std::string_view mark) const {
  std::string out;
  std::size_t done = 0;
  for (const std::size_t at : special_places(text)) {
    const std::size_t end = at + static_cast<std::size_t>(read_code_point(text.data() + at).bytes);
    out += text.substr(done, end - done);
    out += mark;
    done = end;
  }
  return out += text.substr(done);
}

std::size_t Tokenizer::bytes_max(std::int64_t token_count) const {
  std::size_t longest = 1;
  for (const Token& token : tokens_) longest = std::max(longest, token.bytes.size());
  for (const AddedToken& token : added_tokens_)
    if (token.strip_left || token.strip_right) return kTextBytesMax;  // white space in any number
  // Composing makes text shorter, at most to a third: three letters of Hangul are one of as many bytes.
  const std::size_t each = (nfc_ ? 3 : 1) * longest;
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(token_count, 0));
  return count > kTextBytesMax / each ? kTextBytesMax : count * each;
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
