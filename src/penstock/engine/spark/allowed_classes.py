"""Which classes of Spark does a SELECT over given tables need?

An allow-list: a class that is not here is refused, so that what a newer Spark or an extension adds is looked at first.
Not here on purpose: calls by reflection, scripts and other programs, readers of files, commands, functions that tell
about the account or about files, readers of XML, whose options name files, and whatever user-defined functions are
made of.
"""

from __future__ import annotations

_CATALYST = "org.apache.spark.sql.catalyst."
_PLANS = {
    "plans.logical.": """
        Aggregate AsOfJoin CTERelationDef CTERelationRef Deduplicate Distinct Except Expand Filter Generate
        GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit LocalRelation Offset OneRowRelation Pivot Project
        Range RebalancePartitions Repartition RepartitionByExpression ResolvedHint Sample Sort SubqueryAlias Union
        UnionLoop UnionLoopRef Unpivot UnresolvedHint UnresolvedWith Window WithCTE WithWindowDefinition
    """,
    "analysis.": """
        ResolvedInlineTable UnresolvedHaving UnresolvedInlineTable UnresolvedQualify UnresolvedRelation
        UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction
    """,
    "expressions.": """
        PipeOperator
    """,
}
_EXPRESSIONS = {
    "expressions.": """
        Abs Acos Acosh Add AddMonths AesDecrypt AesEncrypt Alias And ApproxTopKEstimate ArrayAggregate ArrayAppend
        ArrayCompact ArrayContains ArrayDistinct ArrayExcept ArrayExists ArrayFilter ArrayForAll ArrayInsert
        ArrayIntersect ArrayJoin ArrayMax ArrayMin ArrayPosition ArrayPrepend ArrayRemove ArrayRepeat ArraySize
        ArraySort ArrayTransform ArrayUnion ArraysOverlap ArraysZip Ascii Asin Asinh AssertTrue AtLeastNNonNulls
        Atan Atan2 Atanh AttributeReference BRound Base64 Between Bin BinaryPad BinaryPredicate BitLength
        BitmapAndAgg BitmapBitPosition BitmapBucketNumber BitmapConstructAgg BitmapCount BitmapOrAgg BitwiseAnd
        BitwiseCount BitwiseGet BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast CastTimestampNTZToLong Cbrt Ceil
        CeilExpressionBuilder CheckOverflow CheckOverflowInSum Chr Coalesce Collate CollateExpressionBuilder
        Collation CollationKey CommonExpressionDef CommonExpressionRef Concat ConcatWs Contains
        ContainsExpressionBuilder Conv ConvertTimezone Cos Cosh Cot Crc32 CreateArray CreateMap CreateNamedStruct
        Csc CsvToStructs Cube CumeDist CurDateExpressionBuilder CurrentCatalog CurrentDatabase CurrentDate
        CurrentRow$ CurrentTime CurrentTimeZone CurrentTimestamp DateAdd DateAddInterval DateAddYMInterval DateDiff
        DateFormatClass DateFromUnixDate DatePartExpressionBuilder DateSub DatetimeSub DayName DayOfMonth DayOfWeek
        DayOfYear Decode DenseRank Divide DivideDTInterval DivideInterval DivideYMInterval DropField ElementAt Elt
        Encode EndsWith EndsWithExpressionBuilder EqualNull EqualNullSafe EqualTo EulerNumber Exists Exp Explode
        ExplodeExpressionBuilder ExplodeGeneratorBuilder ExplodeOuterGeneratorBuilder Expm1 Extract
        ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes ExtractANSIIntervalMonths
        ExtractANSIIntervalSeconds ExtractANSIIntervalYears ExtractIntervalDays ExtractIntervalHours
        ExtractIntervalMinutes ExtractIntervalMonths ExtractIntervalSeconds ExtractIntervalYears Factorial FindInSet
        Flatten Floor FloorExpressionBuilder FormatNumber FormatString FromUTCTimestamp FromUnixTime GeneratorOuter
        Get GetArrayItem GetArrayStructFields GetJsonObject GetMapValue GetStructField GetTimestamp GreaterThan
        GreaterThanOrEqual Greatest Grouping GroupingID GroupingSets Hex HllSketchEstimate HllUnion Hour
        HourExpressionBuilder HoursOfTime Hypot ILike If In InSet InSubquery InitCap Inline InlineExpressionBuilder
        InlineGeneratorBuilder InlineOuterGeneratorBuilder IntegralDivide IsNaN IsNotNull IsNotUnknown$$anon$2
        IsNull IsUnknown$$anon$1 IsValidUTF8 JsonObjectKeys JsonToStructs JsonTuple KllSketchGetNBigint
        KllSketchGetNDouble KllSketchGetNFloat KllSketchGetQuantileBigint KllSketchGetQuantileDouble
        KllSketchGetQuantileFloat KllSketchGetRankBigint KllSketchGetRankDouble KllSketchGetRankFloat
        KllSketchMergeBigint KllSketchMergeDouble KllSketchMergeFloat KllSketchToStringBigint
        KllSketchToStringDouble KllSketchToStringFloat KnownFloatingPointNormalized KnownNotContainsNull
        KnownNotNull KnownNullable LPadExpressionBuilder Lag LambdaFunction LastDay LateralColumnAliasReference
        LateralSubquery Lead Least Left Length LengthOfJsonArray LessThan LessThanOrEqual Levenshtein Like LikeAll
        LikeAny ListQuery Literal LocalTimestamp Log Log10 Log1p Log2 Logarithm Lower Luhncheck MakeDTInterval
        MakeDate MakeInterval MakeTime MakeTimestamp MakeTimestampExpressionBuilder MakeTimestampFromDateTime
        MakeTimestampLTZExpressionBuilder MakeTimestampNTZ MakeTimestampNTZExpressionBuilder MakeValidUTF8
        MakeYMInterval MapConcat MapContainsKey MapEntries MapFilter MapFromArrays MapFromEntries MapKeys MapSort
        MapValues MapZipWith Mask MaskExpressionBuilder Md5 MicrosToTimestamp MillisToTimestamp Minute
        MinuteExpressionBuilder MinutesOfTime MonotonicallyIncreasingID Month MonthName MonthsBetween
        MultiCommutativeOp Multiply MultiplyDTInterval MultiplyInterval MultiplyYMInterval Murmur3Hash NTile NaNvl
        NamedArgumentExpression NamedLambdaVariable NextDay Not NotLikeAll NotLikeAny Now NthValue NullIf NullIfZero
        Nvl Nvl2 OctetLength Or OuterReference OuterScopeReference Overlay ParseToDate ParseToTimestamp
        ParseToTimestampLTZExpressionBuilder ParseToTimestampNTZExpressionBuilder ParseUrl PercentRank Pi
        PipeExpression Pmod PosExplode PosExplodeExpressionBuilder PosExplodeGeneratorBuilder
        PosExplodeOuterGeneratorBuilder Pow PreciseTimestampConversion PrettyAttribute Quarter Quote RLike
        RPadExpressionBuilder RaiseError RaiseErrorExpressionBuilder Rand RandStr Randn Rank RegExpCount
        RegExpExtract RegExpExtractAll RegExpInStr RegExpReplace RegExpSubStr Remainder ReplicateRows
        ResolvedCollation Reverse Right Rint Rollup Round RoundCeil RoundFloor RowNumber ScalarSubquery SchemaOfCsv
        SchemaOfJson Sec Second SecondExpressionBuilder SecondWithFraction SecondsOfTime
        SecondsOfTimeWithFraction SecondsToTimestamp SemiStructuredExtract Sentences Sequence SessionWindow Sha1
        Sha2 ShiftLeft ShiftRight ShiftRightUnsigned Shuffle Signum Sin Sinh Size Slice SortArray SortOrder SoundEx
        SparkPartitionID SparkVersion SpecifiedWindowFrame SplitPart Sqrt Stack StartsWith
        StartsWithExpressionBuilder StringDecode StringInstr StringLPad StringLocate StringRPad StringRepeat
        StringReplace StringSpace StringSplit StringSplitSQL StringToMap StringTranslate StringTrim StringTrimBoth
        StringTrimLeft StringTrimRight StructsToCsv StructsToJson StructsToXml Substring SubstringIndex Subtract
        SubtractDates SubtractTimes SubtractTimestamps Tan Tanh ThetaDifference ThetaIntersection
        ThetaSketchEstimate ThetaUnion TimeAddInterval TimeBucket TimeBucketExpressionBuilder TimeDiff
        TimeFromMicros TimeFromMillis TimeFromSeconds TimeToMicros TimeToMillis TimeToSeconds TimeTrunc TimeWindow
        TimestampAdd TimestampAddInterval TimestampAddYMInterval TimestampDiff ToBinary ToCharacter
        ToCharacterBuilder ToDegrees ToNumber ToPrettyString ToRadians ToTime ToUTCTimestamp ToUnixTimestamp
        TransformKeys TransformValues TruncDate TruncTimestamp TryAdd TryAesDecrypt TryDivide TryElementAt TryEval
        TryMakeInterval TryMakeTimestamp TryMakeTimestampExpressionBuilder TryMakeTimestampFromDateTime
        TryMakeTimestampLTZExpressionBuilder TryMakeTimestampNTZExpressionBuilder TryMod TryMultiply TryParseUrl
        TrySubtract TryToBinary TryToDateExpressionBuilder TryToNumber TryToTimeExpressionBuilder
        TryToTimestampExpressionBuilder TryUrlDecode TryValidateUTF8 TupleDifferenceDouble TupleDifferenceInteger
        TupleDifferenceThetaDouble TupleDifferenceThetaInteger TupleIntersectionDouble TupleIntersectionInteger
        TupleIntersectionThetaDouble TupleIntersectionThetaInteger TupleSketchEstimateDouble
        TupleSketchEstimateInteger TupleSketchSummaryDouble TupleSketchSummaryInteger TupleSketchThetaDouble
        TupleSketchThetaInteger TupleUnionDouble TupleUnionDoubleExpressionBuilder TupleUnionInteger
        TupleUnionIntegerExpressionBuilder TupleUnionThetaDouble TupleUnionThetaDoubleExpressionBuilder
        TupleUnionThetaInteger TupleUnionThetaIntegerExpressionBuilder TypeOf TypedNullLiteral UnBase64 UnaryMinus
        UnaryPositive
        UnboundedFollowing$ UnboundedPreceding$ Unhex Uniform UnixDate UnixMicros UnixMillis UnixSeconds
        UnixTimestamp UnresolvedCollation UnresolvedNamedLambdaVariable UnresolvedWindowExpression UnspecifiedFrame$
        UpCast UpdateFields Upper UrlDecode UrlEncode Uuid ValidateUTF8 VectorAvg VectorCosineSimilarity
        VectorInnerProduct VectorL2Distance VectorNorm VectorNormalize VectorSum WeekDay WeekOfYear WidthBucket
        WindowExpression WindowSpecDefinition WindowTime With WithField XxHash64 Year YearOfWeek
        ZeroIfNull ZipWith
    """,
    "expressions.aggregate.": """
        AggregateExpression AnyValue ApproxCountDistinctForIntervals ApproxTopK ApproxTopKAccumulate
        ApproxTopKCombine ApproximatePercentile Average BitAndAgg BitOrAgg BitXorAgg BoolAnd BoolOr CollectList
        CollectSet CollectTopK Corr Count CountIf CountMinSketchAgg CountMinSketchAggExpressionBuilder CovPopulation
        CovSample First HistogramNumeric HllSketchAgg HllUnionAgg HyperLogLogPlusPlus KllMergeAggBigint
        KllMergeAggDouble KllMergeAggFloat KllSketchAggBigint KllSketchAggDouble KllSketchAggFloat Kurtosis Last
        ListAgg Max MaxBy MaxByBuilder MaxMinByK Median Min MinBy MinByBuilder Mode ModeBuilder Percentile
        PercentileCont PercentileContBuilder PercentileDisc PercentileDiscBuilder PivotFirst Product RegrAvgX
        RegrAvgY RegrCount RegrIntercept RegrR2 RegrReplacement RegrSXX RegrSXY RegrSYY RegrSlope Skewness StddevPop
        StddevSamp Sum ThetaIntersectionAgg ThetaSketchAgg ThetaUnionAgg TryAverageExpressionBuilder
        TrySumExpressionBuilder TupleIntersectionAggDouble TupleIntersectionAggInteger TupleSketchAggDouble
        TupleSketchAggDoubleExpressionBuilder TupleSketchAggInteger TupleSketchAggIntegerExpressionBuilder
        TupleUnionAggDouble TupleUnionAggDoubleExpressionBuilder TupleUnionAggInteger
        TupleUnionAggIntegerExpressionBuilder VariancePop VarianceSamp
    """,
    "expressions.st.": """
        ST_AsBinary ST_GeogFromWKB ST_GeomFromWKB ST_SetSrid ST_Srid
    """,
    "expressions.variant.": """
        IsValidVariant IsVariantNull ParseJson ParseJsonExpressionBuilder SchemaOfVariant SchemaOfVariantAgg
        ToVariantObject TryParseJsonExpressionBuilder TryVariantGetExpressionBuilder VariantExplode
        VariantExplodeGeneratorBuilder VariantExplodeOuterGeneratorBuilder VariantGet VariantGetExpressionBuilder
    """,
    "expressions.xml.": """
        XPathBoolean XPathDouble XPathFloat XPathInt XPathList XPathLong XPathShort XPathString
    """,
    "analysis.": """
        MultiAlias ResolvedStar TempResolvedColumn UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue
        UnresolvedFunction UnresolvedGenerator UnresolvedOrdinal UnresolvedPipeAggregateOrdinal UnresolvedRegex
        UnresolvedSeed$ UnresolvedStar UnresolvedStarExceptOrReplace UnresolvedWithinGroup$
    """,
}
_ROW_MAKERS = """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range stack variant_explode
    variant_explode_outer
"""
ROW_MAKERS = frozenset(_ROW_MAKERS.split())
"""Functions that may stand for a table."""


def _named(by_package: dict[str, str]) -> frozenset[str]:
    return frozenset(_CATALYST + package + name for package, names in by_package.items() for name in names.split())


PLANS = _named(_PLANS)
EXPRESSIONS = _named(_EXPRESSIONS)
