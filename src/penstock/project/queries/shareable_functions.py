"""Which Spark functions give the same for a row, or a group of rows, whatever other rows are in the query?"""

from __future__ import annotations

_NUMBERS = """
abs acos asin atan atan2 bin bround cbrt ceil ceiling conv cos cosh cot degrees e exp expm1 factorial floor greatest
hypot least ln log log10 log1p log2 mod negative pi pmod positive pow power radians rint round sign signum sin sinh
sqrt tan tanh width_bucket try_add try_subtract try_multiply try_divide bit_count bit_get getbit shiftleft shiftright
shiftrightunsigned coalesce if ifnull isnan isnotnull isnull nanvl nullif nullifzero nvl nvl2 zeroifnull equal_null
bigint binary boolean decimal double float int smallint string tinyint to_number try_to_number to_char
"""
_TEXTS = """
ascii base64 bit_length btrim char char_length character_length chr concat concat_ws contains elt endswith find_in_set
format_number format_string initcap instr lcase left length levenshtein locate lower lpad ltrim octet_length overlay
position printf regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace
regexp_substr repeat replace reverse right rlike rpad rtrim soundex space split split_part startswith substr substring
substring_index translate trim ucase unbase64 unhex upper hex md5 sha sha1 sha2 crc32 hash xxhash64 encode decode
url_encode url_decode parse_url from_json get_json_object json_array_length json_object_keys schema_of_json to_json
"""
_TIMES = """
add_months date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart
day dayname dayofmonth dayofweek dayofyear from_unixtime from_utc_timestamp hour last_day make_date make_dt_interval
make_interval make_timestamp make_ym_interval minute month monthname months_between next_day quarter second
timestamp_micros timestamp_millis timestamp_seconds to_date to_timestamp to_timestamp_ntz to_utc_timestamp trunc
unix_date unix_micros unix_millis unix_seconds weekday weekofyear year try_to_timestamp date timestamp
"""
_NESTED = """
array array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort array_union
arrays_overlap arrays_zip cardinality element_at exists filter flatten forall get reduce aggregate sequence size slice
sort_array transform try_element_at zip_with map map_concat map_contains_key map_entries map_filter map_from_arrays
map_from_entries map_keys map_values map_zip_with str_to_map transform_keys transform_values named_struct struct
"""
_GENERATORS = "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple"
_AGGREGATES = """
any avg bit_and bit_or bit_xor bool_and bool_or corr count count_if covar_pop covar_samp every kurtosis max max_by mean
median min min_by percentile regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
regr_syy skewness some std stddev stddev_pop stddev_samp sum try_avg try_sum var_pop var_samp variance
approx_count_distinct
"""
_WINDOWED = "cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number"

GENERATORS = frozenset(_GENERATORS.split())
ROW_WISE = GENERATORS.union(*(names.split() for names in (_NUMBERS, _TEXTS, _TIMES, _NESTED)))
AGGREGATES = frozenset(_AGGREGATES.split())
"""Those whose result hangs on the order in which rows come (first, collect_list, percentile_approx) are not here."""
WINDOWED = frozenset(_WINDOWED.split())
