// The one translation unit that holds Boost.JSON's code; everyone else includes its headers only.
#include <boost/json/src.hpp>
