// The proof as a report keeps it: a line a row and operation instead of one for every proof.
#pragma once

#include <boost/json/object.hpp>

namespace fourfold::cli {

// Of what `fourfold verify --json` prints: the number of proofs, the largest share of a bound, the verdict;
// a proof that did not pass stays as it was found, with shape, seed and numbers.
boost::json::object summarised_verify(const boost::json::object& report);

}  // namespace fourfold::cli
