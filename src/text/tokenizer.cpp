#include "text/tokenizer.h"

#include <algorithm>
#include <atomic>

#include "base/cancel.h"
#include "base/error.h"
#include "base/utf8.h"
#include "text/nfc.h"

namespace fourfold::text {

namespace {

// Offsets inside a piece are 32-bit, and no prompt is longer.
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

namespace {

void require_bounded(std::size_t bytes) {
  if (bytes > kTextBytesMax) {
    fail(Code::invalid_request, "text of {} bytes cannot be tokenized; the limit is {}", with_commas(bytes),
         with_commas(kTextBytesMax));
  }
}

// Broken parts of text that came from outside are repaired; the template's own stay where they were found.
TracedText repaired(const TracedText& text) {
  TracedText out;
  std::size_t done = 0;
  const auto foreign = [&](std::size_t end) {
    out.append(fourfold::repaired(std::string_view(text.bytes()).substr(done, end - done)));
  };
  for (const Run& run : text.own_runs()) {
    foreign(run.begin);
    out.append_own(fourfold::repaired(std::string_view(text.bytes()).substr(run.begin, run.end - run.begin)));
    done = run.end;
  }
  foreign(text.size());
  return out;
}

}  // namespace

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  require_bounded(text.size());
  std::vector<TokenId> out;
  out.reserve(text.size() / 3);
  if (options.add_special_tokens) out = before_;
  const SpecialPlaces special =
      options.special_as_text ? SpecialPlaces::nowhere() : SpecialPlaces::everywhere();
  if (is_valid_utf8(text)) {
    encode_valid(text, special, out);
  } else {
    encode_valid(fourfold::repaired(text), special, out);
  }
  if (options.add_special_tokens) out.insert(out.end(), after_.begin(), after_.end());
  return out;
}

std::vector<TokenId> Tokenizer::encode(const TracedText& text) const {
  require_bounded(text.size());
  if (!is_valid_utf8(text.bytes())) return encode(repaired(text));
  std::vector<TokenId> out;
  out.reserve(text.size() / 3);
  encode_valid(text.bytes(), SpecialPlaces::within(text.own_runs()), out);
  return out;
}

void Tokenizer::encode_valid(std::string_view text, const SpecialPlaces& special,
                             std::vector<TokenId>& out) const {
  const auto id_of = [this](const TextSpan& span) {
    return added_tokens_[static_cast<std::size_t>(span.token_index)].id;
  };
  for (const TextSpan& span : split_at_added_tokens(text, raw_finder_, added_tokens_, special)) {
    if (span.token_index >= 0) {
      out.push_back(id_of(span));
      continue;
    }
    std::string_view normal = text.substr(span.begin, span.end - span.begin);
    std::string rebuilt;
    // Where special tokens may be does not matter when none of these is one.
    SpecialPlaces inside = normalized_special_ ? special.part(span.begin, span.end) : special;
    if (nfc_ && !is_surely_nfc(normal)) {
      std::vector<Rewrite> rewrites;
      normal = rebuilt = to_nfc(normal, normalized_special_ ? &rewrites : nullptr);
      inside = inside.rewritten(rewrites);
    }
    for (const TextSpan& inner : split_at_added_tokens(normal, normalized_finder_, added_tokens_, inside)) {
      if (inner.token_index >= 0) {
        out.push_back(id_of(inner));
      } else {
        encode_pieces(normal.substr(inner.begin, inner.end - inner.begin), out);
      }
    }
  }
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
  std::size_t start = 0, looked = 0;
  constexpr std::size_t kLookEvery = std::size_t{1} << 16;  // bytes: some milliseconds
  for (const std::size_t end : ends) {
    if (end - looked >= kLookEvery) {
      CancelScope::look();
      looked = end;
    }
    encode_piece(bpe_, text.substr(start, end - start), cache, out);
    start = end;
  }
}

std::string Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!(options.skip_special && is_special(id))) bytes += token_bytes(id);
  }
  return is_valid_utf8(bytes) ? bytes : fourfold::repaired(bytes);
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
